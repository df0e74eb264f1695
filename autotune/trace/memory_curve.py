"""Allocator totals over a trace, reduced to a number of points that can be drawn; no peak is lost."""

from __future__ import annotations

import numpy as np

from autotune.records.timeline import MemoryCurve, MemoryPoint
from autotune.trace.columns import MemoryTable

_GIB = float(1 << 30)
_POINTS = 600


def memory_curve(memory: MemoryTable) -> MemoryCurve | None:
    """The curve of the GPU where it was recorded, else of the CPU; None when there are no samples."""
    if not memory.ts.size:
        return None
    device = 1 if (memory.device_type == 1).any() else 0 if (memory.device_type == 0).any() else -1
    rows = np.flatnonzero(memory.device_type == device)
    rows = rows[np.argsort(memory.ts[rows], kind="stable")]
    bounds = np.unique(np.linspace(0, rows.size, min(_POINTS, rows.size) + 1).astype(np.int64))
    points = []
    for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        part = rows[first:end]
        top = part[int(memory.allocated[part].argmax())]
        reserved = int(memory.reserved[part].max())
        points.append(
            MemoryPoint(
                at_ms=int(memory.ts[top]) / 1e6,
                allocated_gib=int(memory.allocated[top]) / _GIB,
                reserved_gib=reserved / _GIB if reserved >= 0 else None,
            )
        )
    names = {1: "gpu", 0: "cpu", -1: "unknown"}
    return MemoryCurve.model_validate({"device": names[device], "points": points})
