"""GPU busy, idle and overlapped time, per class and per stream, exact to the nanosecond."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from autotune.records.trace_time import ClassTime, DeviceTime, GpuTime, StreamFacts
from autotune.trace.classes import UNCLASSIFIED
from autotune.trace.columns import Gpu
from autotune.trace.context import MEMCPY, MEMSET, Context
from autotune.trace.intervals import Intervals, depth_time, gaps, union

COMMUNICATION = "communication"


def span_ns(context: Context) -> tuple[int, int]:
    """First GPU start and last GPU end."""
    return int(context.trace.gpu.ts.min()), int(context.gpu_end.max())


def idle_gaps(context: Context) -> Intervals:
    """Idle time between the first and the last GPU operation."""
    return gaps(context.busy(), *span_ns(context))


def gpu_time(context: Context) -> GpuTime | None:
    """Totals; None when the trace holds no GPU work."""
    gpu = context.trace.gpu
    if not len(gpu):
        return None
    low, high = span_ns(context)
    busy, idle = context.busy(), idle_gaps(context)
    compute = context.busy((gpu.kind == Gpu.KERNEL) & ~context.gpu_of_class(COMMUNICATION))
    span = high - low
    return GpuTime(
        span_ms=span / 1e6,
        busy_ms=busy.total / 1e6,
        idle_ms=idle.total / 1e6,
        idle_frac=idle.total / span if span else 0.0,
        kernel_sum_ms=int(gpu.dur.sum()) / 1e6,
        compute_ms=compute.total / 1e6,
        overlap_ms=depth_time(gpu.ts, context.gpu_end, 2) / 1e6,
        longest_gap_ms=int((idle.ends - idle.starts).max()) / 1e6 if len(idle) else 0.0,
        devices=[_device_time(context, int(device)) for device in np.unique(gpu.device)],
    )


def _device_time(context: Context, device: int) -> DeviceTime:
    gpu = context.trace.gpu
    rows = gpu.device == device
    busy = context.busy(rows)
    span = int(context.gpu_end[rows].max() - gpu.ts[rows].min())
    return DeviceTime(
        device=device,
        span_ms=span / 1e6,
        busy_ms=busy.total / 1e6,
        idle_ms=(span - busy.total) / 1e6,
        operations=int(rows.sum()),
    )


def class_times(context: Context) -> list[ClassTime]:
    """Time per kernel class, largest first."""
    gpu = context.trace.gpu
    total = int(gpu.dur.sum())
    result = []
    for number in np.unique(context.gpu_class):
        rows = context.gpu_class == number
        time = int(gpu.dur[rows].sum())
        result.append(
            ClassTime(
                name=context.class_names[number],
                count=int(rows.sum()),
                total_ms=time / 1e6,
                union_ms=union(gpu.ts[rows], context.gpu_end[rows]).total / 1e6,
                share_frac=time / total if total else 0.0,
                median_us=float(np.median(gpu.dur[rows])) / 1e3,
            )
        )
    return sorted(result, key=lambda item: -item.total_ms)


def unclassified(context: Context) -> tuple[float | None, list[str]]:
    """Share of GPU time without a class, and the longest such kernels."""
    gpu = context.trace.gpu
    total = int(gpu.dur.sum())
    if not len(gpu):
        return None, []
    rows = context.gpu_of_class(UNCLASSIFIED)
    if not rows.any():
        return 0.0, []
    time = np.bincount(gpu.name[rows], weights=gpu.dur[rows], minlength=1)
    longest = [int(number) for number in np.argsort(-time)[:10] if time[number] > 0]
    return (int(gpu.dur[rows].sum()) / total if total else 0.0), [context.trace.names[n] for n in longest]


def streams(context: Context) -> list[StreamFacts]:
    """What each stream is used for, busiest first."""
    gpu = context.trace.gpu
    copies = [context.class_names.index(name) for name in (MEMCPY, MEMSET)]
    result = []
    order = np.lexsort((gpu.stream, gpu.device))  # stable: rows of one stream stay in order of time
    device, stream = gpu.device[order], gpu.stream[order]
    bounds = np.flatnonzero((device[1:] != device[:-1]) | (stream[1:] != stream[:-1])) + 1
    for rows in np.split(order, bounds) if len(gpu) else []:
        times = np.bincount(
            context.gpu_class[rows], weights=gpu.dur[rows], minlength=len(context.class_names)
        ).astype(np.float64)
        result.append(
            StreamFacts.model_validate(
                {
                    "device": int(gpu.device[rows[0]]),
                    "stream": int(gpu.stream[rows[0]]),
                    "role": _role(context, times, copies),
                    "operations": rows.size,
                    "busy_ms": union(gpu.ts[rows], context.gpu_end[rows]).total / 1e6,
                    "top_class": context.class_names[int(np.argmax(times))],
                }
            )
        )
    return sorted(result, key=lambda item: -item.busy_ms)


def _role(context: Context, times: npt.NDArray[np.float64], copies: list[int]) -> str:
    total = float(times.sum()) or 1.0
    sharding = (
        times[context.class_names.index("sharding_copy")] if "sharding_copy" in context.class_names else 0
    )
    shares = {
        "communication": times[context.class_names.index(COMMUNICATION)] / total,
        "copy": (sum(times[number] for number in copies) + sharding) / total,
    }
    for role, share in shares.items():
        if share >= 0.8:
            return role
    return "compute" if sum(shares.values()) < 0.5 else "mixed"
