"""Judge a trace before anything is concluded from it: what is missing, what inflates, what is broken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from autotune.records.trace import TraceWarning, Validity
from autotune.records.trace_comm import Communication
from autotune.records.trace_time import GpuTime, LaunchFacts, Steps
from autotune.trace.columns import Gpu, Host
from autotune.trace.context import LAUNCH, Context
from autotune.trace.plausible import implausible
from autotune.trace.regions import Regions

_REPAIRS = {
    "control_characters": "raw control characters in strings were read as spaces",
    "invalid_utf8": "bytes that are no UTF-8 were replaced",
    "invalid_escapes": "broken escapes in strings were mended",
    "non_finite_numbers": "NaN or infinite numbers were read as absent",
    "odd_field_types": "events had fields of an unexpected type",
    "not_an_object": "entries of traceEvents were no events and were skipped",
    "unreadable_time": "events without a readable time were skipped",
    "clipped_time": "times beyond 73 years were cut",
}
_LOST = ("not_an_object", "unreadable_time", "clipped_time")
_STEP_SOURCES = {
    "optimizer_annotation": "taken from optimizer annotations",
    "optimizer_ops": "taken from optimizer ops",
    "backward": "taken from backward passes",
    "repetition": "taken from repeated calls of one module",
    "whole_trace": "not found, the whole trace counts as one",
}


@dataclass(frozen=True, slots=True)
class Judged:
    """What the validity checks look at."""

    context: Context
    regions: Regions
    steps: Steps
    gpu: GpuTime | None
    launch: LaunchFacts | None
    communication: Communication


def judge(item: Judged) -> Validity:
    """Warnings by code, and the confidence they leave."""
    checks = (
        _reading,
        _gpu_records,
        _sampled,
        _steps,
        _training,
        _overhead,
        _inflation,
        _clock,
        _times,
        _collectives,
    )
    warnings = [warning for check in checks for warning in check(item)]
    worst = {warning.severity for warning in warnings}
    return Validity(
        confidence="low" if "unreliable" in worst else "medium" if "caution" in worst else "high",
        training=(item.regions.has_backward or item.regions.has_optimizer)
        if len(item.context.trace.host)
        else None,
        has_gpu_events=item.context.has_gpu,
        has_forward=item.regions.has_forward,
        has_backward=item.regions.has_backward,
        has_optimizer=item.regions.has_optimizer,
        warnings=warnings,
    )


def _info(code: str, text: str) -> TraceWarning:
    return TraceWarning(code=code, severity="info", text=text)


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _caution(code: str, text: str) -> TraceWarning:
    return TraceWarning(code=code, severity="caution", text=text)


def _unreliable(code: str, text: str) -> TraceWarning:
    return TraceWarning(code=code, severity="unreliable", text=text)


def _reading(item: Judged) -> Iterator[TraceWarning]:
    trace, cleaning = item.context.trace, item.context.cleaning
    for code, count in sorted(trace.repairs.items()):
        if count:
            make = _unreliable if code in _LOST else _info
            yield make(code, f"{_often(count)}: {_REPAIRS.get(code, code)}")
    if cleaning.negative:
        yield _caution(
            "negative_duration", f"{cleaning.negative:,} events without a valid duration count as 0"
        )
    if cleaning.over_long:
        yield _caution("over_long_events", f"{cleaning.over_long:,} events outlast the trace and were cut")
    unpaired = sum(count for (phase, _), count in trace.counts.items() if phase in ("B", "E", "b", "e"))
    if unpaired:
        yield _caution("begin_end_events", f"{unpaired:,} begin/end events were not read")


def _gpu_records(item: Judged) -> Iterator[TraceWarning]:
    context, gpu = item.context, item.context.trace.gpu
    launched = int(context.host_named(LAUNCH.match, Host.RUNTIME, Host.DRIVER).sum())
    if item.gpu is None:
        if launched or context.trace.metadata.get("deviceProperties"):
            yield _unreliable(
                "missing_gpu_events",
                "no GPU work was recorded although a GPU is there; profile with ProfilerActivity.CUDA",
            )
        else:
            yield _info("cpu_only", "no GPU in the trace: tables show CPU time")
        return
    if not len(context.trace.host):
        yield _unreliable("missing_cpu_events", "no CPU events: nothing can be attributed to a cause")
        return
    cleaning = context.cleaning
    if cleaning.earlier:
        yield _info(
            "launched_earlier",
            f"{cleaning.earlier:,} GPU operations ({cleaning.earlier_ns / 1e6:.1f} ms) were launched before "
            "the recording began; they belong to an earlier step and are left out",
        )
    kernels = gpu.kind == Gpu.KERNEL
    total, lost = int(kernels.sum()), int((kernels & (context.launch_row < 0)).sum())
    if lost > 0.02 * total:
        make = _caution if lost < 0.5 * total else _unreliable
        yield make(
            "unmatched_kernels",
            f"{lost:,} of {total:,} kernels have no launch call in the trace: records were dropped",
        )
    if launched > 1.05 * total + 50:
        yield _unreliable(
            "dropped_records", f"{launched:,} launch calls but {total:,} kernels: GPU records were dropped"
        )
    if context.cleaning.same_stream_overlaps:
        yield _info(
            "stream_overlap",
            f"{context.cleaning.same_stream_overlaps:,} operations run into the next one of their stream "
            f"({context.cleaning.overlap_ns / 1e6:.3f} ms); busy times are unions",
        )


def _sampled(item: Judged) -> Iterator[TraceWarning]:
    """Records thinned or lost: op numbers that leave most of their range out."""
    host = item.context.trace.host
    numbered = (host.kind == Host.OP) & (host.link > 0)
    count = int(numbered.sum())
    if count <= 200 or item.context.trace.count("python_function"):
        return
    sample = host.link[numbered][:: max(count // 50_000, 1)]
    low, high = np.percentile(sample, [1, 99])
    density = 0.98 * count / max(float(high - low), 1.0)
    if density < 0.5:
        yield _unreliable(
            "dropped_records",
            f"only {density:.0%} of the op numbers between the first and the last op occur: records are "
            "missing, idle time and launch statistics cannot be trusted",
        )


def _steps(item: Judged) -> Iterator[TraceWarning]:
    if item.steps.source != "profiler_step":
        yield _info("no_profiler_step", f"no ProfilerStep mark: steps {_STEP_SOURCES[item.steps.source]}")
    if len(item.steps.steps) >= 3:
        spans = [step.span_ms for step in item.steps.steps]
        rest = float(np.median(spans[1:]))
        if rest > 0 and spans[0] > 1.5 * rest:
            yield _caution(
                "first_step_slow",
                f"the first step takes {spans[0]:.1f} ms, the others {rest:.1f} ms: warm-up is in the trace",
            )


def _training(item: Judged) -> Iterator[TraceWarning]:
    regions = item.regions
    if not len(item.context.trace.host):
        return
    if not regions.has_backward and not regions.has_optimizer:
        yield _info("not_training", "no backward pass and no optimizer step: not a training step")
    elif not regions.has_backward:
        yield _caution("no_backward", "an optimizer step but no backward pass in the trace")
    elif not regions.has_optimizer:
        yield _info("no_optimizer", "a backward pass but no optimizer step in the trace")


def _overhead(item: Judged) -> Iterator[TraceWarning]:
    overhead, names = item.context.trace.overhead, item.context.trace.names
    count: dict[str, int] = {}
    spent: dict[str, float] = {}
    for number in np.unique(overhead.name):
        rows = overhead.name == number
        count[names[number]] = int(rows.sum())
        spent[names[number]] = int(overhead.dur[rows].sum()) / 1e6
    full, lazy = "Command Buffer Full", "Lazy Function Loading"
    if full in count:
        yield _info(
            "command_buffer_full",
            f"{_often(count[full])}, {spent[full]:.1f} ms: the CPU ran ahead and waited for room in the "
            "launch queue; the GPU is saturated, the profiler is fine",
        )
    if lazy in count:
        make = _caution if count[lazy] >= 20 or spent[lazy] >= 5 else _info
        yield make(
            "lazy_loading",
            f"{_often(count[lazy])}, {spent[lazy]:.1f} ms: kernels loaded on first use: still warming up",
        )
    rest = sum(time for name, time in spent.items() if name not in (full, lazy))
    if rest:
        heavy = item.gpu is not None and rest > 0.03 * item.gpu.span_ms
        make = _caution if heavy else _info
        yield make("profiler_overhead", f"{rest:.1f} ms of profiler buffer handling inside the trace")
    loads = item.context.host_named(
        lambda text: text.startswith(("cuModuleLoad", "cuLibraryLoad", "hipModuleLoad")),
        Host.RUNTIME,
        Host.DRIVER,
    )
    if loads.sum() >= 3:
        yield _caution(
            "jit_in_trace", f"{int(loads.sum())} GPU modules were loaded inside the trace: JIT was not over"
        )


def _inflation(item: Judged) -> Iterator[TraceWarning]:
    many_launches = item.launch is not None and item.launch.calls > 2_000
    if many_launches and item.gpu is not None and item.gpu.idle_frac > 0.25:
        yield _caution(
            "profiled_step_inflated",
            "a launch-bound step takes up to 1.6x its real time under the profiler: GPU busy time holds, "
            "gaps do not; divide busy time by an unprofiled step",
        )
    if item.context.trace.count("python_function"):
        yield _info("python_stacks", "recorded with Python stacks, which slows the CPU side further")


def _clock(item: Judged) -> Iterator[TraceWarning]:
    context = item.context
    gpu, host = context.trace.gpu, context.trace.host
    known = context.launch_row >= 0
    if known.any():
        lead = host.ts[context.launch_row[known]] - gpu.ts[known]
        early = lead[lead > 0]
        if early.size >= 5 and early.size > 0.01 * lead.size:
            make = _unreliable if early.size > 0.2 * lead.size else _caution
            yield make(
                "clock_disorder",
                f"{early.size:,} GPU operations start before their launch (median "
                f"{np.median(early) / 1e3:.1f} us): CPU and GPU clocks disagree",
            )
    cut = context.tree.cut_rows
    if cut:
        make = _caution if cut > 0.01 * len(host) else _info
        yield make("nesting_disorder", f"{cut:,} CPU events outlive the event around them; cut to fit")


def _times(item: Judged) -> Iterator[TraceWarning]:
    yield from implausible(item.context)


def _collectives(item: Judged) -> Iterator[TraceWarning]:
    found = item.communication
    if found.host_ops > 5 and not found.kernels and item.context.has_gpu:
        yield _caution(
            "communication_kernels_missing",
            f"{found.host_ops} collective calls on the CPU but no communication kernel on the GPU",
        )
    if found.kernels and not any(row.elements_in for row in found.collectives):
        yield _info("no_collective_arguments", "collectives carry no sizes: bytes and bandwidth are unknown")
