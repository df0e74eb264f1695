"""Divide a trace into training steps, whatever marks it carries."""

from __future__ import annotations

import itertools
import re

import numpy as np
import numpy.typing as npt

from autotune.records.trace_time import Steps, StepTime
from autotune.trace.columns import Gpu, Host
from autotune.trace.context import Context
from autotune.trace.intervals import union
from autotune.trace.launches import launch_calls

I64 = npt.NDArray[np.int64]

_STEP = re.compile(r"Optimizer\.step#")
_STEP_OPS = re.compile(r"aten::_fused_(adam|adamw|sgd|adagrad)_?$")
_BURST_GAP_NS = 3_000_000


def find_steps(context: Context) -> Steps:
    """Steps from ProfilerStep marks, optimizer annotations, optimizer ops or backward bursts."""
    host = context.trace.host
    marks = np.flatnonzero(context.step_marks)
    if marks.size:
        marks = marks[np.argsort(host.ts[marks])]
        bounds = [(int(host.ts[row]), int(host.ts[row] + host.dur[row])) for row in marks]
        labels = [context.trace.names[host.name[row]] for row in marks]
        return _steps(context, "profiler_step", bounds, labels)
    for source, ends in (
        ("optimizer_annotation", _ends(context, _STEP)),
        ("optimizer_ops", _ends(context, _STEP_OPS)),
        ("backward", _backward_ends(context)),
    ):
        if ends.size:
            return _steps(context, source, *_between(context, ends))
    repeated = _repetition(context)
    if repeated is not None:
        return _steps(context, "repetition", *repeated)
    if not len(host) and not len(context.trace.gpu):
        return Steps(source="whole_trace", count=0, steps=[], micro_batches=None)
    return _steps(context, "whole_trace", [_cpu_span(context)], ["whole trace"])


def _cpu_span(context: Context) -> tuple[int, int]:
    host = context.trace.host
    rows = np.flatnonzero((host.kind == Host.OP) | (host.kind == Host.RUNTIME))
    if not rows.size:
        gpu = context.trace.gpu
        return (int(gpu.ts.min()), int(context.gpu_end.max())) if len(gpu) else (0, 0)
    return int(host.ts[rows].min()), int(context.tree.end[rows].max())


def _ends(context: Context, pattern: re.Pattern[str]) -> I64:
    """End times of optimizer steps; steps of several optimizers in a row count once."""
    host = context.trace.host
    rows = np.flatnonzero(context.host_named(pattern.match, Host.ANNOTATION, Host.OP))
    if not rows.size:
        return np.zeros(0, dtype=np.int64)
    rows = rows[np.argsort(host.ts[rows])]
    backward = _backward_spans(context)
    starts, ends = host.ts[rows], context.tree.end[rows]
    if backward.size:
        burst = np.searchsorted(backward, starts)
        new = np.append(burst[1:] != burst[:-1], True)
    else:
        new = np.append(starts[1:] - ends[:-1] > _BURST_GAP_NS, True)
    return np.asarray(ends[new])


def _backward_spans(context: Context) -> I64:
    """Start times of backward passes."""
    host = context.trace.host
    rows = np.flatnonzero((context.eval_row >= 0) & (host.kind == Host.OP))
    if not rows.size:
        return np.zeros(0, dtype=np.int64)
    grad = np.flatnonzero(
        (host.kind == Host.OP) & (context.eval_row < 0) & (host.forward == 0) & (host.sequence >= 0)
    )
    spans = union(host.ts[rows], context.tree.end[rows])
    if not len(spans):
        return spans.starts
    if not grad.size:
        gap = np.append(True, spans.starts[1:] - spans.ends[:-1] > _BURST_GAP_NS)
        return np.asarray(spans.starts[gap])
    order = np.searchsorted(np.sort(host.ts[grad]), spans.starts)  # forward ops before each piece
    return np.asarray(spans.starts[np.append(True, order[1:] > order[:-1])])


def _backward_ends(context: Context) -> I64:
    host = context.trace.host
    starts = _backward_spans(context)
    if not starts.size:
        return starts
    rows = np.flatnonzero((context.eval_row >= 0) & (host.kind == Host.OP))
    group = np.searchsorted(starts, host.ts[rows], side="right") - 1
    ends = np.zeros(starts.size, dtype=np.int64)
    np.maximum.at(ends, np.maximum(group, 0), context.tree.end[rows])
    return ends


def _between(context: Context, ends: I64) -> tuple[list[tuple[int, int]], list[str]]:
    """Steps that end at these times. A piece before the first end or after the last one may be partial."""
    low, high = _cpu_span(context)
    begins = _backward_spans(context)
    first_whole = begins.size and begins[0] < ends[0]
    bounds = []
    if first_whole:
        bounds.append((low, int(ends[0])))
    bounds += [(int(start), int(end)) for start, end in itertools.pairwise(ends)]
    if not bounds:
        bounds = [(low, high)]
    bounds[-1] = (bounds[-1][0], high) if len(bounds) == 1 else bounds[-1]
    return bounds, [f"step {index + 1}" for index in range(len(bounds))]


def _repetition(context: Context) -> tuple[list[tuple[int, int]], list[str]] | None:
    """Repeated calls of one outermost module or top-level range that cover most of the trace."""
    host = context.trace.host
    tops = np.flatnonzero(
        (context.tree.parent < 0) & ((host.kind == Host.ANNOTATION) | (host.kind == Host.PYTHON))
    )
    modules = np.flatnonzero(context.host_named(lambda text: text.startswith("nn.Module: "), Host.PYTHON))
    if modules.size:
        outer = context.tree.outermost(context.host_named(lambda text: text.startswith("nn.Module: ")))
        tops = modules[outer[modules] == modules]
    if not tops.size:
        return None
    low, high = _cpu_span(context)
    numbers, counts = np.unique(host.name[tops], return_counts=True)
    for number in numbers[np.argsort(-counts)]:
        rows = tops[host.name[tops] == number]
        rows = rows[np.argsort(host.ts[rows])]
        covered = int((context.tree.end[rows] - host.ts[rows]).sum())
        if rows.size >= 2 and covered > 0.5 * max(high - low, 1):
            starts = host.ts[rows].tolist()
            bounds = list(zip(starts, [*starts[1:], int(context.tree.end[rows[-1]])], strict=True))
            return bounds, [context.trace.names[number]] * rows.size
    return None


def _steps(context: Context, source: str, bounds: list[tuple[int, int]], labels: list[str]) -> Steps:
    host, gpu = context.trace.host, context.trace.gpu
    origin = context.gpu_source()
    launched = np.where(origin >= 0, host.ts[np.maximum(origin, 0)], gpu.ts) if len(host) else gpu.ts
    calls = host.ts[launch_calls(context)]
    backward = _backward_spans(context)
    steps = []
    for index, ((low, high), label) in enumerate(zip(bounds, labels, strict=True)):
        last = index == len(bounds) - 1
        rows = (launched >= low) & ((launched < high) | last) if index else (launched < high) | last
        following = bounds[index + 1][0] if not last else high
        steps.append(
            StepTime(
                label=label,
                start_ms=low / 1e6,
                span_ms=(max(following, high) - low if not last else high - low) / 1e6,
                gpu_busy_ms=context.busy(rows).total / 1e6 if len(gpu) else None,
                gpu_kernels=int((rows & (gpu.kind == Gpu.KERNEL)).sum()),
                launches=int(((calls >= low) & (calls < high)).sum()),
            )
        )
    micro = None
    if backward.size and source in ("profiler_step", "optimizer_annotation", "optimizer_ops"):
        optimizer_steps = max(_ends(context, _STEP).size, _ends(context, _STEP_OPS).size)
        micro = round(backward.size / optimizer_steps) if optimizer_steps else None
    return Steps.model_validate(
        {"source": source, "count": len(steps), "steps": steps, "micro_batches": micro}
    )
