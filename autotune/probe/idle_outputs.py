"""Rows of the model's logits to which no gradient comes back: the output layer worked on them for nothing."""

from __future__ import annotations

import sys
from typing import Any

_FEWEST_CLASSES = 1024
_ROWS, _POSITIONS = 16, 64  # looked at, evenly spread
_MOST = 2  # gradients

_shares: list[Any] = []  # tensors of one value: reading one would wait for the device
_classes = 0


def look(gradient: Any) -> None:
    """The gradient of an output of the model."""
    global _classes
    if type(gradient) is not sys.modules["torch"].Tensor or len(_shares) >= _MOST:
        return  # a kind of its own may compute whatever it likes
    if gradient.dim() != 3 or gradient.shape[-1] < _FEWEST_CLASSES or gradient.is_sparse:
        return
    rows, positions, _classes = (int(size) for size in gradient.shape)
    some = gradient.detach()[:: max(1, rows // _ROWS), :: max(1, positions // _POSITIONS)]
    _shares.append((some != 0).any(dim=-1).float().mean())


def found() -> dict[str, Any]:
    """Fields of ForwardUses."""
    if not _shares:
        return {}
    idle = [1.0 - float(share) for share in _shares]
    _shares.clear()
    return {"idle_rows_frac": round(min(idle), 4), "idle_rows_classes": _classes}
