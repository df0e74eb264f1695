"""How kernels reached the GPU, and what the CPU did while the GPU was idle."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from autotune.records.trace_time import IdleCause, LaunchFacts
from autotune.trace.columns import Gpu, Host
from autotune.trace.context import GRAPH_LAUNCH, LAUNCH, Context
from autotune.trace.gpu_time import idle_gaps
from autotune.trace.intervals import Intervals, intersect, subtract, union
from autotune.trace.syncs import SYNC_CALL

Mask = npt.NDArray[np.bool_]

AT_ONCE_NS = 15_000  # a kernel that starts this soon after its launch found an empty queue
_LAUNCH_LATENCY_NS = 20_000
DATA_LOADING = re.compile(
    r"enumerate\(DataLoader\)#|\[pl\]\[profile\]\w*dataloader_next|DataLoader\.__next__"
)
COMPILING = re.compile(
    r".*\(dynamo_timed\)$|.*(_compile\.compile_inner|convert_frame|CachingAutotuner\.benchmark|do_bench"
    r"|triton/compiler/compiler\.py|torch/_dynamo/convert_frame\.py|torch/_inductor/compile_fx\.py)"
    r"|cu(ModuleLoad|LibraryLoad)|hipModuleLoad"
)


def launch_calls(context: Context) -> Mask:
    """Host rows that launch kernels or graphs."""
    return context.host_named(LAUNCH.match, Host.RUNTIME, Host.DRIVER)


def launch_facts(context: Context) -> LaunchFacts | None:
    """Launch statistics; None without GPU kernels."""
    host, gpu, names = context.trace.host, context.trace.gpu, context.trace.names
    kernels = gpu.kind == Gpu.KERNEL
    if not kernels.any():
        return None
    calls = launch_calls(context)
    numbers, counts = np.unique(host.name[calls], return_counts=True)
    by_name = {names[number]: int(count) for number, count in zip(numbers, counts, strict=True)}
    matched = kernels & (context.launch_row >= 0)
    rows = context.launch_row[matched]
    ends = host.ts[rows] + host.dur[rows]
    delay = np.maximum(gpu.ts[matched] - ends, 0)
    depth = _queue_depth(np.sort(ends), gpu.ts[matched]) if matched.any() else None
    host_busy = _launching_threads_busy(context)
    idle = idle_gaps(context)
    return LaunchFacts(
        calls=int(calls.sum()),
        calls_by_name=dict(sorted(by_name.items(), key=lambda item: -item[1])),
        call_total_ms=int(host.dur[calls].sum()) / 1e6,
        call_median_us=float(np.median(host.dur[calls])) / 1e3 if calls.any() else 0.0,
        graph_launches=int(context.host_named(GRAPH_LAUNCH.match, Host.RUNTIME, Host.DRIVER).sum()),
        matched_kernels=int(matched.sum()),
        queue_delay_median_us=float(np.median(delay)) / 1e3 if delay.size else None,
        started_at_once_frac=float((delay < AT_ONCE_NS).mean()) if delay.size else None,
        gap_host_busy_ms=intersect(idle, host_busy).total / 1e6 if len(host) else None,
        queue_depth_median=float(np.median(depth)) if depth is not None else None,
        queue_empty_frac=float((depth <= 1).mean()) if depth is not None else None,
        median_kernel_us=float(np.median(gpu.dur[kernels])) / 1e3,
    )


def _queue_depth(launched: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """At each launch: kernels launched so far, this one included, that have not started yet."""
    started = np.searchsorted(np.sort(starts), launched, side="left")
    return np.asarray(np.maximum(np.arange(1, launched.size + 1) - started, 0), dtype=np.int64)


def launching_threads(context: Context) -> Mask:
    """Host rows of threads that launch GPU work."""
    host = context.trace.host
    rows = context.launch_row[context.launch_row >= 0]
    if not rows.size:
        rows = context.op_row[context.op_row >= 0]
    return context.on_threads(np.unique(host.thread[rows]))


def _launching_threads_busy(context: Context) -> Intervals:
    mine = launching_threads(context) & context.of_kind(Host.OP, Host.RUNTIME, Host.DRIVER)
    return subtract(context.host_span(mine), context.host_span(mine & _syncs(context)))


def _syncs(context: Context) -> Mask:
    return context.host_named(SYNC_CALL.match, Host.RUNTIME, Host.DRIVER)


def idle_causes(context: Context) -> list[IdleCause]:
    """Split GPU idle time by cause. Each moment counts once, in the order of the checks."""
    if not context.has_gpu:
        return []
    idle = idle_gaps(context)
    total = idle.total
    found: dict[str, int] = {}
    waiting, queued_short = _after_launch(context, idle)
    found["launch"] = queued_short.total
    found["stream_wait"] = waiting.total
    rest = subtract(subtract(idle, waiting), queued_short)
    for cause, covered in _host_activity(context):
        part = intersect(rest, covered)
        found[cause] = found.get(cause, 0) + part.total
        rest = subtract(rest, part)
    found["unknown"] = rest.total
    return [
        IdleCause.model_validate({"cause": cause, "total_ms": time / 1e6, "share_frac": time / total})
        for cause, time in sorted(found.items(), key=lambda item: -item[1])
        if time
    ]


def _after_launch(context: Context, idle: Intervals) -> tuple[Intervals, Intervals]:
    """Idle time when the next operation was already launched: long waits, and mere launch latency."""
    gpu, host = context.trace.gpu, context.trace.host
    nothing = Intervals(idle.starts[:0], idle.ends[:0])
    if not len(idle) or not (context.launch_row >= 0).any():
        return nothing, nothing
    following = np.searchsorted(gpu.ts, idle.ends)
    following = np.minimum(following, len(gpu) - 1)
    row = context.launch_row[following]
    launched = np.where(row >= 0, host.ts[np.maximum(row, 0)] + host.dur[np.maximum(row, 0)], idle.ends)
    starts = np.clip(launched, idle.starts, idle.ends)
    length = idle.ends - starts
    long = length > _LAUNCH_LATENCY_NS
    short = (length > 0) & ~long
    return Intervals(starts[long], idle.ends[long]), Intervals(starts[short], idle.ends[short])


def _host_activity(context: Context) -> Iterator[tuple[str, Intervals]]:
    host = context.trace.host
    mine = launching_threads(context)
    yield "data_loading", context.host_span(context.host_named(DATA_LOADING.match))
    yield "compile", context.host_span(mine & context.host_named(COMPILING.match))
    yield "sync", context.host_span(mine & _syncs(context))
    yield "launch", context.host_span(mine & context.of_kind(Host.RUNTIME, Host.DRIVER))
    yield "host_ops", context.host_span(mine & (host.kind == Host.OP))
    traced = mine & context.of_kind(Host.PYTHON, Host.ANNOTATION) & ~context.step_marks
    yield "python", context.host_span(traced)
    if mine.any():
        rows = np.flatnonzero(mine)
        yield "python", union(host.ts[rows].min(keepdims=True), context.tree.end[rows].max(keepdims=True))
