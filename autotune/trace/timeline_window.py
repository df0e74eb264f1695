"""Which part of a trace to draw: one step, and a short stretch of it in which single kernels can be seen."""

from __future__ import annotations

import numpy as np

from autotune.records.trace_time import Steps
from autotune.trace.context import Context
from autotune.trace.intervals import overlap

_KERNELS_NEAR = 48  # GPU operations in the closer look
_CANDIDATES = 400


def step_window(context: Context, steps: Steps) -> tuple[str, int, int] | None:
    """Label, start and end of the step of median length, until the last GPU work launched in it ends."""
    if not steps.steps:
        return None
    ordered = sorted(steps.steps, key=lambda step: step.span_ms)
    step = ordered[(len(ordered) - 1) // 2]
    low = round(step.start_ms * 1e6)
    high = low + round(step.span_ms * 1e6)
    if context.has_gpu:
        source = context.gpu_source()
        known = source >= 0
        launched = context.trace.host.ts[source[known]]
        mine = (launched >= low) & (launched < high)
        if mine.any():
            high = max(high, int(context.gpu_end[known][mine].max()))
        elif not known.any():
            high = max(high, int(context.gpu_end.max()))
    return (step.label, low, high) if high > low else None


def closer_window(context: Context, low: int, high: int) -> tuple[int, int] | None:
    """A stretch with some dozens of GPU operations whose busy share is nearest to the whole step's."""
    gpu = context.trace.gpu
    rows = np.flatnonzero((gpu.ts >= low) & (gpu.ts < high)) if len(gpu) else np.zeros(0, dtype=np.int64)
    if rows.size < 4 * _KERNELS_NEAR:
        return None
    width = (high - low) * _KERNELS_NEAR // rows.size
    starts = np.linspace(low, high - width, _CANDIDATES).astype(np.int64)
    busy = context.busy()
    whole = overlap(busy, np.array([low]), np.array([high]))[0] / (high - low)
    share = overlap(busy, starts, starts + width) / width
    many = np.searchsorted(gpu.ts, starts + width) - np.searchsorted(gpu.ts, starts)
    # Of stretches that are alike, one with the usual number of kernels.
    distance = np.abs(share - whole) + 0.5 * np.abs(many / _KERNELS_NEAR - 1.0)
    start = int(starts[int(distance.argmin())])
    return start, start + int(width)
