"""Achieved arithmetic and memory rates per kernel class, against the device's peaks.

Work comes from the recorded shapes of the ops that launched the kernels: floating-point operations where
they can be counted, and the bytes of inputs and outputs read and written once, which is a lower bound.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from autotune.records.trace import Device
from autotune.records.trace_ops import RooflineRow
from autotune.trace.columns import Host
from autotune.trace.context import Context
from autotune.trace.device import dtype_peaks
from autotune.trace.flops import op_flop
from autotune.trace.inputs import Inputs, decode_inputs, type_bytes

# Classes whose traffic follows from tensor shapes. Lookups read rows, mixers and optimizers hide their work.
_CLASSES = frozenset(
    ("gemm", "attention", "conv", "causal_conv", "norm", "elementwise", "reduction", "softmax", "loss", "cat",
     "sharding_copy")
)  # fmt: skip
_COUNTED = frozenset(("gemm", "attention", "conv"))
_NO_OUTPUT = frozenset(("reduction", "loss"))


def op_bytes(name: str, item: Inputs, kernel_class: str) -> float | None:
    """Bytes an op reads and writes at least; None when no tensor input was recorded."""
    sizes = []
    for index in range(len(item.dims)):
        shape = item.shape(index)
        width = type_bytes(item.types[index]) if index < len(item.types) else None
        if shape and width:
            sizes.append((math.prod(shape), width))
    if not sizes:
        return None
    read = sum(count * width for count, width in sizes)
    return read + _output_bytes(name, item, kernel_class, sizes)


def _output_bytes(name: str, item: Inputs, kernel_class: str, sizes: list[tuple[int, float]]) -> float:
    if name.endswith("_") or name.endswith("_out"):  # in place: the output is among the inputs
        return 0.0 if name.endswith("_out") else sizes[0][0] * sizes[0][1]
    if kernel_class in _NO_OUTPUT:
        return 0.0
    if kernel_class == "gemm":
        first = 1 if name in ("aten::addmm", "aten::baddbmm") else 0
        a, b = item.shape(first), item.shape(first + 1)
        width = type_bytes(item.types[first]) if first < len(item.types) else None
        return math.prod(a[:-1]) * b[-1] * width if a and b and width else 0.0
    if kernel_class == "cat":
        return sum(count * width for count, width in sizes)
    largest = max(sizes)
    return largest[0] * largest[1]


def roofline(context: Context, device: Device | None) -> list[RooflineRow]:
    """One row per kernel class whose ops recorded shapes."""
    gpu, host = context.trace.gpu, context.trace.host
    if not context.has_gpu or not len(context.trace.shapes):
        return []
    peaks = dtype_peaks(device)
    width = len(context.trace.shapes) + 1
    found = []
    for number in np.unique(context.gpu_class):
        kind = context.class_names[number]
        rows = np.flatnonzero((context.gpu_class == number) & (context.op_row >= 0))
        if kind not in _CLASSES or not rows.size:
            continue
        ops = context.op_row[rows]
        usable = (host.shape[ops] >= 0) & (host.kind[ops] == Host.OP)
        rows, ops = rows[usable], ops[usable]
        if not rows.size:
            continue
        unique_ops = np.unique(ops)
        key = host.name[unique_ops].astype(np.int64) * width + host.shape[unique_ops]
        keys, counts = np.unique(key, return_counts=True)
        key_of_row = host.name[ops].astype(np.int64) * width + host.shape[ops]
        times = np.zeros(keys.size, dtype=np.int64)
        np.add.at(times, np.searchsorted(keys, key_of_row), gpu.dur[rows])
        row = _row(context, kind, keys, counts, times, peaks, device)
        if row is not None:
            found.append(row)
    return sorted(found, key=lambda item: -item.gpu_ms)


def _row(
    context: Context,
    kind: str,
    keys: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    times: npt.NDArray[np.int64],
    peaks: dict[str, float | None],
    device: Device | None,
) -> RooflineRow | None:
    names, width = context.trace.names, len(context.trace.shapes) + 1
    calls, flop, moved, time = 0, 0.0, 0.0, 0
    by_dtype: dict[str, float] = {}
    for key, count, spent in zip(keys.tolist(), counts.tolist(), times.tolist(), strict=True):
        name = names[key // width]
        item = decode_inputs(context.trace.shapes[key % width])
        size = op_bytes(name, item, kind)
        if size is None:
            continue
        calls += count
        moved += size * count
        flop += (op_flop(name, item) or 0) * count if kind in _COUNTED else 0
        time += spent
        dtype = item.dtype(1 if name in ("aten::addmm", "aten::baddbmm") else 0)
        if dtype is not None:
            by_dtype[dtype] = by_dtype.get(dtype, 0.0) + spent
    if not calls or not time:
        return None
    main = max(by_dtype, key=lambda dtype: by_dtype[dtype]) if by_dtype else None
    peak = peaks.get(main or "") if flop else None
    bandwidth = device.memory_gb_s if device is not None else None
    bound, frac = _bound(flop, moved, time, peak, bandwidth)
    return RooflineRow(
        op_class=kind,
        calls=calls,
        gpu_ms=time / 1e6,
        gflop=flop / 1e9,
        gbytes=moved / 1e9,
        flop_per_byte=flop / moved if flop and moved else None,
        tflops=flop / time / 1e3 if flop else None,
        gb_s=moved / time,
        bound=bound,
        roof_frac=frac,
    )


def _bound(
    flop: float, moved: float, time_ns: int, peak_tflops: float | None, gb_s: float | None
) -> tuple[Literal["compute", "memory", "unknown"], float | None]:
    """Which roof is nearer, and the achieved share of it."""
    compute_ns = flop / peak_tflops / 1e3 if flop and peak_tflops else 0.0
    memory_ns = moved / gb_s if gb_s else 0.0
    if not memory_ns:
        return "unknown", None
    if flop and not peak_tflops:
        return "unknown", None
    if compute_ns > memory_ns:
        return "compute", compute_ns / time_ns
    return "memory", memory_ns / time_ns
