"""CPU and GPU time by nn.Module, where the trace was recorded with stacks."""

from __future__ import annotations

import re

import numpy as np

from autotune.records.trace_ops import ModuleRow
from autotune.trace.columns import Gpu, Host
from autotune.trace.context import Context

_MODULE = re.compile(r"nn\.Module: (.+?)(_\d+)?$")


def module_rows(context: Context) -> list[ModuleRow]:
    """Time by module class, innermost module first to claim it; empty without module frames.

    Backward work carries no module frames, so GPU time here is forward and recomputed work.
    """
    host, gpu, names = context.trace.host, context.trace.gpu, context.trace.names
    frames = context.host_named(_MODULE.match, Host.PYTHON)
    if not frames.any():
        return []
    nearest, source = context.tree.nearest(frames), context.gpu_source()
    owner = np.where(source >= 0, nearest[np.maximum(source, 0)], -1)
    known = owner >= 0
    gpu_time = np.bincount(owner[known], weights=gpu.dur[known], minlength=len(host))
    kernels = np.bincount(owner[known & (gpu.kind == Gpu.KERNEL)], minlength=len(host))
    outer = context.tree.outermost(frames)
    totals: dict[str, list[float]] = {}
    for row in np.flatnonzero(frames).tolist():
        match = _MODULE.match(names[host.name[row]])
        entry = totals.setdefault(match.group(1) if match else "", [0, 0.0, 0.0, 0, 0])
        entry[0] += 1
        entry[1] += int(context.tree.end[row] - host.ts[row])
        entry[2] += float(gpu_time[row])
        entry[3] += int(kernels[row])
        entry[4] += outer[row] == row
    return [
        ModuleRow(
            name=name,
            calls=int(calls),
            outermost_calls=int(outermost),
            cpu_ms=cpu / 1e6,
            gpu_ms=spent / 1e6,
            kernels=int(count),
        )
        for name, (calls, cpu, spent, count, outermost) in sorted(
            totals.items(), key=lambda item: -item[1][2]
        )
    ]
