"""Replace a function by one that also tells us about the call; the signature and name stay the same.

Under torch.compile's tracing the original runs alone, so nothing of ours ever ends up in a graph.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from .core import core, hook

_MARK = "_autotune_observed"


def _compiling() -> bool:
    """False until torch is there; then torch.compiler.is_compiling, which tracing folds to True."""
    return False


def use_torch(torch: Any) -> None:
    global _compiling
    _compiling = torch.compiler.is_compiling


def observe(
    owner: Any,
    name: str,
    before: Callable[..., Any] | None = None,
    after: Callable[..., Any] | None = None,
    failed: Callable[[], Any] | None = None,
) -> None:
    """`before(original, args, kwargs)` runs first; `after(original, args, kwargs, result, elapsed_ns)` last.

    `failed()` runs instead of `after` when the original raises.

    `owner`: a module or class. Class methods and static methods keep their kind; `args` of a method begin
    with self.
    """
    raw = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if raw is None or getattr(raw, _MARK, False):
        return
    original = raw.__func__ if isinstance(raw, (classmethod, staticmethod)) else raw
    if not callable(original) or getattr(original, _MARK, False):
        return
    wrapper = _wrapper(original, *(hook(call) if call else None for call in (before, after, failed)))
    if isinstance(raw, classmethod):
        setattr(owner, name, classmethod(wrapper))
    elif isinstance(raw, staticmethod):
        setattr(owner, name, staticmethod(wrapper))
    else:
        setattr(owner, name, wrapper)
        _same_to_scripts(original, wrapper)


def _same_to_scripts(original: Any, wrapper: Any) -> None:
    """TorchScript knows its builtin functions by identity: the wrapper is one wherever the original is."""
    builtins: Any = sys.modules.get("torch.jit._builtins")
    try:
        name = builtins._find_builtin(original) if builtins is not None else None
        if name is not None:
            builtins._register_builtin(wrapper, name)
    except Exception:
        core.sink.fault("wrapping._same_to_scripts")


def _wrapper(
    original: Callable[..., Any],
    before: Callable[..., Any] | None,
    after: Callable[..., Any] | None,
    failed: Callable[..., Any] | None,
) -> Callable[..., Any]:
    compiling = sys.modules[__name__].__dict__["_compiling"]
    if after is None:

        @functools.wraps(original)
        def first(*args: Any, **kwargs: Any) -> Any:
            if not compiling():
                before(original, args, kwargs)  # type: ignore[misc]
            return original(*args, **kwargs)

        wrapper = first
    else:

        @functools.wraps(original)
        def both(*args: Any, **kwargs: Any) -> Any:
            if compiling():
                return original(*args, **kwargs)
            if before is not None:
                before(original, args, kwargs)
            start = perf_counter_ns()
            try:
                result = original(*args, **kwargs)
            except BaseException:
                if failed is not None:
                    failed()
                raise
            after(original, args, kwargs, result, perf_counter_ns() - start)
            return result

        wrapper = both
    setattr(wrapper, _MARK, True)
    return wrapper
