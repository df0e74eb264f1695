"""A pickled or copied module holds none of the observer's hooks: a saved model loads without the observer.

`torch.save(model)`, pickle and copy.deepcopy all ask the module's `__reduce_ex__`.
"""

from __future__ import annotations

import functools
from typing import Any

from .core import core

_PACKAGE = __name__.split(".", 1)[0]
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_backward_pre_hooks")
_ABOUT_HOOKS = (
    "_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
)  # fmt: skip


def install(torch: Any) -> None:
    module = torch.nn.Module
    original = module.__reduce_ex__
    own = "__reduce_ex__" in vars(module)

    @functools.wraps(original)
    def __reduce_ex__(self: Any, protocol: Any, /) -> Any:
        # inherited: whatever comes after the module among the classes of this one, a mixin's too
        found = original(self, protocol) if own else super(module, self).__reduce_ex__(protocol)
        try:
            return _without_ours(found)
        except Exception:
            core.sink.fault("module_state.__reduce_ex__")
            return found

    module.__reduce_ex__ = __reduce_ex__


def _without_ours(found: Any) -> Any:
    """The reduced value; a new one only when hooks of ours are in its state."""
    if not isinstance(found, tuple) or len(found) < 3:
        return found
    state = found[2][0] if isinstance(found[2], tuple) and found[2] else found[2]
    if not isinstance(state, dict):
        return found
    ours = {
        key for name in _HOOKS for key, hook in (state.get(name) or {}).items() if _is_ours(hook)
    }  # ids are given once in a process
    if not ours:
        return found
    cleaned = dict(state)
    for name in (*_HOOKS, *_ABOUT_HOOKS):
        hooks = state.get(name)
        if hooks:
            cleaned[name] = type(hooks)((k, v) for k, v in hooks.items() if k not in ours)
    whole = (cleaned, *found[2][1:]) if isinstance(found[2], tuple) else cleaned
    return (*found[:2], whole, *found[3:])


def _is_ours(hook: Any) -> bool:
    where = getattr(hook, "__module__", None) or type(hook).__module__
    return str(where).split(".", 1)[0] == _PACKAGE
