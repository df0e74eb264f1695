"""Make times plausible before anything is computed, and say what was changed.

Nothing is dropped here: a negative duration counts as zero, an over-long one is cut where the rest of the
trace ends, and both are reported.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.trace.columns import GpuTable, Trace

_SLACK_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Cleaning:
    """How many events were changed."""

    negative: int
    over_long: int
    same_stream_overlaps: int
    overlap_ns: int
    repeated: int  # GPU operations equal to the one before them in stream, name, start and length
    earlier: int = 0  # GPU operations left out: launched before the recording began
    earlier_ns: int = 0  # their time


def clean_times(trace: Trace) -> Cleaning:
    """Cut implausible durations in place and sort GPU work by start."""
    negative = 0
    for table in (trace.host, trace.gpu, trace.overhead, trace.gpu_annotations):
        below = table.dur < 0
        negative += int(below.sum())
        table.dur[below] = 0
    over_long = _cut_over_long(trace)
    _sort_gpu(trace.gpu)
    return Cleaning(negative, over_long, *_stream_overlaps(trace.gpu))


def _cut_over_long(trace: Trace) -> int:
    """Cut events that outlive every start and the profiler's window by more than the trace's length."""
    starts = [table.ts for table in (trace.host, trace.gpu) if table.ts.size]
    if not starts:
        return 0
    limit = max(int(ts.max()) for ts in starts)
    if trace.window_ns is not None and trace.window_ns[1] < limit + (1 << 50):
        limit = max(limit, trace.window_ns[1])
    elif sum(ts.size for ts in starts) < 2:
        return 0
    extent = limit - min(int(ts.min()) for ts in starts)
    bound = limit + max(extent, _SLACK_NS)
    cut = 0
    for table in (trace.host, trace.gpu, trace.overhead, trace.gpu_annotations):
        late = table.ts + table.dur > bound
        cut += int(late.sum())
        table.dur[late] = np.maximum(limit - table.ts[late], 0)
    return cut


def _sort_gpu(gpu: GpuTable) -> None:
    if not len(gpu) or (gpu.ts[1:] >= gpu.ts[:-1]).all():
        return
    order = np.argsort(gpu.ts, kind="stable")
    for column in (
        "ts", "dur", "name", "kind", "device", "stream", "correlation", "external", "bytes", "collective",
    ):  # fmt: skip
        setattr(gpu, column, getattr(gpu, column)[order])


def _stream_overlaps(gpu: GpuTable) -> tuple[int, int, int]:
    """Operations of one stream that run into the next one, by more than rounding, for how long; repeats."""
    if len(gpu) < 2:
        return 0, 0, 0
    order = np.lexsort((gpu.ts, gpu.stream, gpu.device))
    same = (gpu.stream[order][1:] == gpu.stream[order][:-1]) & (
        gpu.device[order][1:] == gpu.device[order][:-1]
    )
    ends = (gpu.ts + gpu.dur)[order][:-1]
    over = np.where(same, ends - gpu.ts[order][1:], 0)
    late = over > 1_000
    repeated = same & (over > 0)
    for column in (gpu.ts, gpu.dur, gpu.name):
        repeated &= column[order][1:] == column[order][:-1]
    return int(late.sum()), int(over[late].sum()), int(repeated.sum())
