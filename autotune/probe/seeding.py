"""Random numbers start alike in every launch of a comparison, so that all arms meet the same batches.

A job that sets its own seed does so later and wins. A comparison over several seeds adds a number to it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

from . import finder

_inside = [False]  # torch.manual_seed seeds CUDA through its public function: added once


def seed_all(seed: int, torch: Any) -> None:
    """Seed Python, torch (all devices), and numpy when it is imported."""
    random.seed(seed)
    torch.manual_seed(seed)
    finder.when_imported("numpy", lambda numpy: numpy.random.seed(seed % 2**32))


def shift_seeds(by: int, torch: Any) -> None:
    """From here on every seed that the job sets is `by` larger: Python's, torch's, numpy's."""
    _shift(random, "seed", by)
    for module in (torch, torch.random, torch.cuda, sys.modules.get("torch.cuda.random")):
        for name in ("manual_seed", "manual_seed_all"):
            _shift(module, name, by)
    finder.when_imported("numpy", lambda numpy: _shift(numpy.random, "seed", by, modulus=2**32))


def _shift(module: Any, name: str, by: int, modulus: int = 0) -> None:
    original: Callable[..., Any] | None = getattr(module, name, None)
    if original is None or getattr(original, "_autotune_shifted", False):
        return

    def shifted(*args: Any, **kwargs: Any) -> Any:
        if _inside[0]:
            return original(*args, **kwargs)
        args, kwargs = _added(args, kwargs, by, modulus)
        _inside[0] = True
        try:
            return original(*args, **kwargs)
        finally:
            _inside[0] = False

    shifted.__name__ = name
    shifted.__doc__ = original.__doc__
    shifted._autotune_shifted = True  # type: ignore[attr-defined]
    setattr(module, name, shifted)


def _added(
    args: tuple[Any, ...], kwargs: dict[str, Any], by: int, modulus: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with its seed moved; what is no whole number (none, bytes, an array) stays."""

    def moved(value: Any) -> Any:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            return value
        number = int(value.__index__()) + by
        return number % modulus if modulus else number

    if args:
        return (moved(args[0]), *args[1:]), kwargs
    return args, {key: moved(value) if key in ("seed", "a") else value for key, value in kwargs.items()}
