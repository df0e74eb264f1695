"""Optimizers that take the place of a dead one in the loop, whose moments are lost with it.

Counted only where nothing else explains the new one: same class, same parameters, the old one had states and
is gone, and nobody wrote to the parameters in between (an inner loop of meta-learning or an adaptation per
example puts the weights back; an attack or a fitted image has parameters of its own).
"""

from __future__ import annotations

import weakref
from typing import Any


class _Seen:
    """An optimizer that stepped: what must be the same in the one that replaces it."""

    def __init__(self, optimizer: Any, parameters: list[Any]) -> None:
        self.optimizer = weakref.ref(optimizer)
        self.ends = [weakref.ref(p) for p in (parameters[0], parameters[-1])]
        self.versions: list[int] = []
        self.had_states = False

    def after_step(self, optimizer: Any) -> None:
        self.versions = [p._version for reference in self.ends if (p := reference()) is not None]
        self.had_states = bool(optimizer.state)


_last: dict[tuple[type, tuple[int, ...]], _Seen] = {}
_running: dict[int, _Seen] = {}  # by the optimizer's id; checked against its reference
_MOST = 64


def before_step(optimizer: Any) -> bool:
    """True at the first step of an optimizer that replaces a dead one."""
    known = _running.get(id(optimizer))
    if known is not None and known.optimizer() is optimizer:
        return False
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if not parameters:
        return False
    key = (type(optimizer), tuple(id(p) for p in parameters))
    old, new = _last.get(key), _Seen(optimizer, parameters)
    for kept in (_last, _running):
        if len(kept) >= _MOST:
            kept.clear()
    _last[key] = _running[id(optimizer)] = new
    if old is None or not old.had_states or old.optimizer() is not None:
        return False
    ends = [reference() for reference in old.ends]
    same = all(p is q for p, q in zip(ends, (parameters[0], parameters[-1]), strict=True))
    return same and old.versions == [p._version for p in ends if p is not None]


def after_step(optimizer: Any) -> None:
    known = _running.get(id(optimizer))
    if known is not None and known.optimizer() is optimizer:
        known.after_step(optimizer)
