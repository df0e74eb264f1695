"""Steps of a job without a torch optimizer: an update shows by the parameters it changes.

After a backward a few small parameters are copied; when the loop goes on (the next batch, the next backward)
they are compared. That waits for the device, so it ends as soon as the rhythm is known: from then on every so
many backwards are a step.
"""

from __future__ import annotations

import sys
from typing import Any

from . import models
from .core import core

_MOST_PARAMETERS = 4
_MOST_ELEMENTS = 1 << 16
_EQUAL_GAPS = 3  # equal distances between updates before the rhythm is believed
_LOOKS = 256  # backwards without an update after which nothing more is compared

_copies: list[tuple[Any, Any]] = []
_since = 0  # backwards since the last update
_looks = 0
_gaps: list[int] = []
_rhythm = 0
_off = False  # there is an optimizer, or nothing changes


def backward_ended() -> None:
    """The outermost backward is over: remember what an update would change."""
    global _since, _looks, _off
    if _off:
        return
    if models.optimizers() or _looks > _LOOKS:
        _off, _since = True, 0
        _copies.clear()
        return
    _since += 1
    if _rhythm:
        return
    _looks += 1
    root = models.root()
    parameters = [] if root is None else [p for p in root.parameters() if p.grad is not None]
    parameters.sort(key=lambda p: p.numel())
    _copies[:] = [
        (p, p.detach().clone()) for p in parameters[:_MOST_PARAMETERS] if p.numel() <= _MOST_ELEMENTS
    ]


def over() -> bool:
    """The loop goes on: whether an update was made since the last backward."""
    global _since, _looks, _rhythm
    if not _since:
        return False
    if _rhythm:
        changed = _since >= _rhythm
    else:
        torch: Any = sys.modules["torch"]
        changed = any(not torch.equal(parameter.detach(), copy) for parameter, copy in _copies)
        _copies.clear()
    if changed:
        _looks = 0
        if not _gaps and not _rhythm:
            core.emit("note", {"text": "no torch optimizer: steps were told by the parameters that changed"})
        if not _rhythm:
            _gaps.append(_since)
            last = _gaps[-_EQUAL_GAPS:]
            _rhythm = last[0] if len(last) == _EQUAL_GAPS and len(set(last)) == 1 else 0
        _since = 0
    return changed
