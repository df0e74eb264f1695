"""The two founding tables: top CPU ops and top GPU kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from autotune.records.trace_ops import FoundingTables, KernelRow, OpRow
from autotune.trace.classes import UNCLASSIFIED
from autotune.trace.columns import Gpu, Host
from autotune.trace.context import Context

TOP = 2_000  # rows kept: in practice all, so that two traces can be compared name by name


def founding_tables(context: Context, top: int = TOP) -> FoundingTables:
    """Rows by total time, with counts over all of them."""
    host, gpu = context.trace.host, context.trace.gpu
    ops = host.kind == Host.OP
    kernels = gpu.kind == Gpu.KERNEL
    return FoundingTables(
        cpu_ops=_op_rows(context, top),
        cpu_calls=int(ops.sum()),
        cpu_distinct=int(np.unique(host.name[ops]).size),
        gpu_kernels=_kernel_rows(context, top),
        gpu_kernel_count=int(kernels.sum()),
        gpu_distinct=int(np.unique(gpu.name[kernels]).size),
        median_kernel_us=float(np.median(gpu.dur[kernels])) / 1e3 if kernels.any() else None,
    )


def _op_rows(context: Context, top: int) -> list[OpRow]:
    host, names = context.trace.host, context.trace.names
    rows = np.flatnonzero(host.kind == Host.OP)
    if not rows.size:
        return []
    own = context.tree.self_time(host.ts)[rows]
    number = host.name[rows]
    calls = np.bincount(number)
    total = np.bincount(number, weights=host.dur[rows])
    self_time = np.bincount(number, weights=own)
    chosen = sorted(np.flatnonzero(calls).tolist(), key=lambda n: (-total[n], names[n]))[:top]
    return [
        OpRow(
            name=names[n],
            calls=int(calls[n]),
            average_us=float(total[n] / calls[n]) / 1e3,
            total_ms=float(total[n]) / 1e6,
            self_ms=float(self_time[n]) / 1e6,
        )
        for n in chosen
    ]


def _kernel_rows(context: Context, top: int) -> list[KernelRow]:
    gpu, names = context.trace.gpu, context.trace.names
    rows = np.flatnonzero(gpu.kind == Gpu.KERNEL)
    if not rows.size:
        return []
    number = gpu.name[rows]
    calls = np.bincount(number)
    total = np.bincount(number, weights=gpu.dur[rows])
    chosen = sorted(np.flatnonzero(calls).tolist(), key=lambda n: (-total[n], names[n]))[:top]
    order = rows[np.argsort(number, kind="stable")]
    ends = np.cumsum(calls)
    result = []
    for n in chosen:
        mine = order[ends[n] - calls[n] : ends[n]]
        kind = context.class_names[int(np.bincount(context.gpu_class[mine]).argmax())]
        result.append(
            KernelRow(
                name=names[n],
                calls=int(calls[n]),
                average_us=float(total[n] / calls[n]) / 1e3,
                total_ms=float(total[n]) / 1e6,
                kernel_class=None if kind == UNCLASSIFIED else kind,
                launched_by=_launcher(context, mine),
            )
        )
    return result


def _launcher(context: Context, rows: npt.NDArray[np.int64]) -> str | None:
    ops = context.op_row[rows]
    ops = ops[ops >= 0]
    if not ops.size:
        return None
    return context.trace.names[int(np.bincount(context.trace.host.name[ops]).argmax())]
