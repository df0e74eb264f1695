"""Rows of large tables that an optimizer updates although the step gave them no gradient.

An embedding looks a few rows up, but its dense gradient covers the whole table, and so does the update.
"""

from __future__ import annotations

from typing import Any

_FEWEST_ROWS = 10_000
_LOOKED_AT = 4096  # rows, evenly spread
_found: dict[int, int] = {}


def look(optimizer: Any) -> None:
    """The gradients are about to be used: once, in the first step of an optimizer."""
    idle, seen = 0, False
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None or gradient.is_sparse or hasattr(gradient, "_local_tensor"):
                continue
            seen = True
            if gradient.dim() != 2 or gradient.shape[0] < _FEWEST_ROWS:
                continue
            some = gradient.detach()[:: gradient.shape[0] // _LOOKED_AT]
            share = float((some != 0).any(dim=1).float().mean())
            idle += int((1.0 - share) * gradient.numel())
    if seen:
        _found[id(optimizer)] = idle


def of(optimizer: Any) -> int | None:
    """Values that are updated for nothing; None before the first step."""
    return _found.get(id(optimizer))
