"""Floating-point work of ops from their recorded shapes, and GEMM time by data type."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import numpy.typing as npt

from autotune.records.trace_ops import DTypeTime, FlopFacts, FlopRow
from autotune.trace.columns import Host
from autotune.trace.context import Context
from autotune.trace.inputs import Inputs, decode_inputs

MATMULS = frozenset(
    f"aten::{name}"
    for name in (
        "mm", "addmm", "bmm", "baddbmm", "addbmm", "_scaled_mm", "_int_mm", "_grouped_mm", "mv", "addmv",
        "_addmm_activation", "_scaled_grouped_mm",
    )
)  # fmt: skip
_BIASED = frozenset(f"aten::{name}" for name in ("addmm", "baddbmm", "addbmm", "addmv", "_addmm_activation"))
_ATTENTION = frozenset(
    f"aten::_scaled_dot_product_{name}_attention{tail}"
    for name in ("flash", "efficient", "cudnn", "fused")
    for tail in ("", "_backward", "_for_cpu", "_for_cpu_backward", "_overrideable")
)
_CONVOLUTIONS = frozenset(("aten::convolution", "aten::convolution_backward"))
COUNTED = MATMULS | _ATTENTION | _CONVOLUTIONS
_UNCOUNTED = frozenset(
    ("torch_attn::_varlen_attn", "torch_attn::_varlen_attn_backward", "aten::_flash_attention_forward",
     "aten::_flash_attention_backward", "aten::_efficient_attention_forward",
     "aten::_efficient_attention_backward", "aten::einsum", "aten::_thnn_fused_lstm_cell", "aten::_cudnn_rnn")
)  # fmt: skip


def op_flop(name: str, item: Inputs) -> int | None:
    """Floating-point operations of one call (a multiply-add counts two); None when shapes do not tell."""
    if name in MATMULS:
        return _matmul(name, item)
    if name in _ATTENTION:
        return _attention(name, item)
    if name in _CONVOLUTIONS:
        return _convolution(name, item)
    return None


def _matmul(name: str, item: Inputs) -> int | None:
    first = 1 if name in _BIASED else 0
    a, b = item.shape(first), item.shape(first + 1)
    if not a or not b:
        return None
    if len(b) == 1:  # matrix times vector
        return 2 * math.prod(a)
    return 2 * math.prod(a) * b[-1]  # grouped: every token meets one expert, so the same


def _attention(name: str, item: Inputs) -> int | None:
    shift = 1 if "backward" in name else 0  # backward takes grad_out first
    q, k, v = item.shape(shift), item.shape(shift + 1), item.shape(shift + 2)
    if not q or not k or not v or min(len(q), len(k), len(v)) < 4:
        return None
    pairs = math.prod(q[:-1]) * k[-2]
    flop = 2 * pairs * q[-1] + 2 * pairs * v[-1]
    return flop * 5 // 2 if shift else flop


def _convolution(name: str, item: Inputs) -> int | None:
    shift = 1 if "backward" in name else 0
    x, w = item.shape(shift), item.shape(shift + 1)
    if not x or not w or len(x) < 3 or len(w) != len(x):
        return None
    if shift:
        out = item.shape(0)
        if not out:
            return None
        per_output = 2 * w[1] * math.prod(w[2:])
        wanted = str(item.value(10) or "")
        parts = sum(flag == "True" for flag in wanted.strip("[]").replace(" ", "").split(",")[:2]) or 2
        return parts * math.prod(out) * per_output
    stride, pad, dilation = (_ints(item.value(index), len(x) - 2) for index in (3, 4, 5))
    if stride is None or pad is None or dilation is None or item.value(6) not in (None, "False"):
        return None
    space = [
        (size + 2 * p - d * (kernel - 1) - 1) // s + 1
        for size, kernel, s, p, d in zip(x[2:], w[2:], stride, pad, dilation, strict=True)
    ]
    return 2 * x[0] * w[0] * math.prod(space) * w[1] * math.prod(w[2:])


def _ints(value: object, count: int) -> list[int] | None:
    if value is None:
        return None
    parts = [part.strip() for part in str(value).strip("[]").split(",") if part.strip()]
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        return None
    return numbers * count if len(numbers) == 1 else numbers if len(numbers) == count else None


def flop_facts(context: Context, peaks: dict[str, float | None], busy_ms: float | None) -> FlopFacts | None:
    """Work and achieved rates; None when no op recorded its shapes."""
    host, names = context.trace.host, context.trace.names
    counted = context.host_named(lambda text: text in COUNTED, Host.OP) & (host.shape >= 0)
    skipped = context.host_named(lambda text: text in _UNCOUNTED, Host.OP)
    if not counted.any():
        return None
    times = op_times(context, counted)
    # An op without GPU work computed nothing: recomputation stops inside the last op it needs.
    rows = np.flatnonzero(counted & (times > 0))
    if not rows.size:
        return None
    work: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    by_dtype: dict[str, float] = defaultdict(float)
    double_ns = 0.0
    one_hot = _one_hot_sizes(context)
    uncounted = {names[number] for number in np.unique(host.name[skipped])}
    keys = host.name[rows].astype(np.int64) * (len(context.trace.shapes) + 1) + host.shape[rows]
    unique, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    time_per_key = np.bincount(inverse, weights=times[rows], minlength=unique.size)
    forward = _forward(context)[rows]
    lookups: dict[tuple[int, int], tuple[int, float]] = {}  # forward products with a one-hot's size
    for place, (key, count, time) in enumerate(
        zip(unique.tolist(), counts.tolist(), time_per_key.tolist(), strict=True)
    ):
        name = names[key // (len(context.trace.shapes) + 1)]
        item = decode_inputs(context.trace.shapes[key % (len(context.trace.shapes) + 1)])
        flop = op_flop(name, item)
        if flop is None:
            if item.dims:
                uncounted.add(name)
            continue
        entry = work[name]
        entry[0] += count
        entry[1] += flop * count
        entry[2] += time
        dtype = item.dtype(1 if name in _BIASED else 0)
        by_dtype[dtype or "unknown"] += flop * count
        double_ns += time if dtype == "fp64" else 0.0
        if one_hot and name in MATMULS:
            first = item.shape(1 if name in _BIASED else 0) or [0]
            size = (math.prod(first[:-1]), first[-1])
            if size in one_hot:
                here = forward & (inverse == place)
                calls, spent = lookups.get(size, (0, 0.0))
                lookups[size] = (calls + int(here.sum()), spent + float(times[rows][here].sum()))
    if not work:
        return None
    found = _facts(context, work, by_dtype, sorted(uncounted), peaks, busy_ms)
    told: dict[str, float | int | None] = {"fp64_ms": double_ns / 1e6}
    if one_hot:
        # more products than such matrices: the model is as wide as there are classes, its layers look alike
        one_hot_ns = sum(spent for size, (calls, spent) in lookups.items() if calls <= one_hot[size])
        told |= {"one_hot_ms": one_hot_ns / 1e6, "one_hot_classes": max(classes for _, classes in one_hot)}
    return found.model_copy(update=told)


def _one_hot_sizes(context: Context) -> Counter[tuple[int, int]]:
    """Rows and classes of the one-hot matrices that are made, and how many of each."""
    host = context.trace.host
    rows = np.flatnonzero(
        context.host_named(lambda text: text == "aten::one_hot", Host.OP) & (host.shape >= 0)
    )
    found: Counter[tuple[int, int]] = Counter()
    for number, calls in zip(*np.unique(host.shape[rows], return_counts=True), strict=True):
        item = decode_inputs(context.trace.shapes[number])
        value = str(item.value(1) or "")
        if value.isdigit():
            found[math.prod(item.shape(0) or []), int(value)] += int(calls)
    return found


def _forward(context: Context) -> npt.NDArray[np.bool_]:
    """Host rows outside the backward. There the gradients of an output layer have a one-hot matrix's size."""
    in_backward = context.eval_row >= 0
    return ~in_backward if in_backward.any() else in_backward


def op_times(context: Context, counted: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Nanoseconds per host row: GPU time launched inside it, or CPU time without a GPU."""
    host, gpu = context.trace.host, context.trace.gpu
    if not context.has_gpu:
        return np.where(counted, context.tree.end - host.ts, 0).astype(np.float64)
    owner = context.tree.nearest(counted)
    source = context.gpu_source()
    row = np.where(source >= 0, owner[np.maximum(source, 0)], -1)
    known = row >= 0
    return np.bincount(row[known], weights=gpu.dur[known], minlength=len(host)).astype(np.float64)


def _facts(
    context: Context,
    work: dict[str, list[float]],
    by_dtype: dict[str, float],
    uncounted: list[str],
    peaks: dict[str, float | None],
    busy_ms: float | None,
) -> FlopFacts:
    total = sum(entry[1] for entry in work.values())
    time = sum(entry[2] for entry in work.values())
    main = max(by_dtype, key=lambda dtype: by_dtype[dtype])
    busy = total / (busy_ms * 1e9) if busy_ms else None
    peak = peaks.get(main)
    rows = [
        FlopRow(
            op=name,
            calls=int(calls),
            gflop=flop / 1e9,
            time_ms=spent / 1e6,
            tflops=flop / spent / 1e3 if spent else None,
        )
        for name, (calls, flop, spent) in sorted(work.items(), key=lambda item: -item[1][1])
    ]
    return FlopFacts(
        total_gflop=total / 1e9,
        counted_ms=time / 1e6,
        achieved_tflops=total / time / 1e3 if time else None,
        busy_tflops=busy,
        peak_frac=busy / peak if busy is not None and peak else None,
        main_dtype=main if main != "unknown" else None,
        uncounted_ops=uncounted,
        rows=rows,
    )


def gemm_times(context: Context) -> list[DTypeTime]:
    """GEMM time by data type: the op's recorded input type, else what the kernel's name spells."""
    gpu, host, names = context.trace.gpu, context.trace.host, context.trace.names
    rows = np.flatnonzero(context.gpu_of_class("gemm"))
    if not rows.size:
        return []
    ops = context.host_named(lambda text: text in MATMULS, Host.OP) & (host.shape >= 0)
    nearest = context.tree.nearest(ops)
    source = context.gpu_source()[rows]
    op = np.where(source >= 0, nearest[np.maximum(source, 0)], -1) if len(host) else np.full(rows.size, -1)
    shape = np.where(op >= 0, host.shape[np.maximum(op, 0)], -1) if len(host) else op
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    keys = np.stack([gpu.name[rows].astype(np.int64), shape.astype(np.int64)], axis=1)
    unique, inverse = np.unique(keys, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    counts = np.bincount(inverse, minlength=len(unique))
    times = np.bincount(inverse, weights=gpu.dur[rows], minlength=len(unique))
    for (name, number), count, time in zip(unique.tolist(), counts.tolist(), times.tolist(), strict=True):
        spelled = context.table.gemm_dtype(names[name])
        recorded = None
        if number >= 0:
            recorded = decode_inputs(context.trace.shapes[number]).dtype(0)
        if recorded is None or (recorded == "fp32" and spelled == "tf32"):
            recorded = spelled
        entry = totals[recorded]
        entry[0] += count
        entry[1] += int(time)
    return [
        DTypeTime.model_validate({"dtype": dtype, "count": count, "total_ms": time / 1e6})
        for dtype, (count, time) in sorted(totals.items(), key=lambda item: -item[1][1])
    ]
