"""Facts from the CPU side: data loading, copies, compilation, CPU time, allocator totals."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from autotune.records.trace_ops import CompileFacts, CopyRow, CpuTime, DataLoading, MemoryFacts
from autotune.trace.columns import Gpu, Host
from autotune.trace.context import Context
from autotune.trace.launches import COMPILING, DATA_LOADING

_GIB = float(1 << 30)
_DIRECTION = re.compile(r"Memcpy\s+(\w+)|CopyDeviceTo(\w+)|CopyHostTo(\w+)")
_SHORT = {"HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "HtoA", "AtoH", "AtoD", "DtoA"}
_MODULE_LOAD = re.compile(r"(cu|hip)(Module|Library)(Load|GetModule)")
_AUTOTUNE = re.compile(
    r".*(benchmark_all_configs|do_bench|autotune_select_algorithm|triton/runtime/autotuner\.py)"
)


def data_loading(context: Context) -> DataLoading:
    """Time in `enumerate(DataLoader)` and its relatives."""
    host = context.trace.host
    rows = np.flatnonzero(context.host_named(DATA_LOADING.match))
    if rows.size:
        outer = context.tree.outermost(context.host_named(DATA_LOADING.match))
        rows = rows[outer[rows] == rows]
    spent = host.dur[rows]
    span = _span(context)
    total = int(spent.sum())
    return DataLoading(
        calls=int(rows.size),
        total_ms=total / 1e6,
        longest_ms=int(spent.max()) / 1e6 if rows.size else 0.0,
        name=context.trace.names[host.name[rows[0]]] if rows.size else None,
        share_frac=total / span if span else None,
    )


def _span(context: Context) -> int:
    host = context.trace.host
    return int(context.tree.end.max() - host.ts.min()) if len(host) else 0


def copies(context: Context) -> list[CopyRow]:
    """Copies by direction and memory sets, longest first."""
    gpu, names = context.trace.gpu, context.trace.names
    groups: dict[tuple[str, bool | None], npt.NDArray[np.bool_]] = {}
    for number in np.unique(gpu.name[gpu.kind != Gpu.KERNEL]):
        rows = (gpu.name == number) & (gpu.kind != Gpu.KERNEL)
        name = names[number]
        if int(gpu.kind[rows][0]) == Gpu.MEMSET:
            key: tuple[str, bool | None] = ("Memset", None)
        else:
            match = _DIRECTION.match(name)
            found = next((part for part in match.groups() if part), None) if match else None
            pageable = "Pageable" in name if "Pinned" in name or "Pageable" in name else None
            key = (found if found in _SHORT else name, pageable)
        groups[key] = groups[key] | rows if key in groups else rows
    result = []
    for (direction, pageable), rows in groups.items():
        sizes = gpu.bytes[rows]
        known = bool((sizes >= 0).all())
        result.append(
            CopyRow(
                direction=direction,
                count=int(rows.sum()),
                bytes=int(sizes.sum()) if known else None,
                total_ms=int(gpu.dur[rows].sum()) / 1e6,
                pageable=pageable,
            )
        )
    return sorted(result, key=lambda item: -item.total_ms)


def compile_facts(context: Context) -> CompileFacts:
    """torch.compile regions, and just-in-time work inside the trace."""
    overhead, names = context.trace.overhead, context.trace.names
    region = context.host_named(lambda text: text.startswith("Torch-Compiled Region"))
    graph = context.host_named(lambda text: text.startswith("## Call CompiledFxGraph"))
    lazy = np.fromiter((names[n] == "Lazy Function Loading" for n in overhead.name), bool, overhead.name.size)
    return CompileFacts(
        compiled_regions=int(region.sum()),
        compiled_graph_calls=int(graph.sum()),
        compiled_kernels=int(context.gpu_of_class("compiled").sum()),
        compile_ms=context.host_span(context.host_named(COMPILING.match)).total / 1e6,
        module_loads=int(context.host_named(_MODULE_LOAD.match, Host.RUNTIME, Host.DRIVER).sum()),
        lazy_loads=int(lazy.sum()),
        autotune_ms=context.host_span(context.host_named(_AUTOTUNE.match)).total / 1e6,
    )


_ENGINE = "autograd::engine::evaluate_function"


def cpu_time(context: Context) -> CpuTime:
    """CPU time in ops, Python frames and runtime calls."""
    host = context.trace.host
    ops = host.kind == Host.OP
    calls = context.of_kind(Host.RUNTIME, Host.DRIVER)
    frames = host.kind == Host.PYTHON
    own = context.tree.self_time(host.ts) if len(host) else host.ts
    span = _span(context)
    main = training = None
    if ops.any() and span:
        busiest = int(np.bincount(host.thread[ops], weights=context.tree.end[ops] - host.ts[ops]).argmax())
        # the engine's record of one backward function also holds the hooks, which may be anything
        engine = context.host_named(lambda text: text.startswith(_ENGINE))
        here = host.thread == busiest
        main = context.host_span(((ops & ~engine) | calls) & here).total / span
        training = context.host_span((ops | calls) & here).total / span
    return CpuTime(
        span_ms=span / 1e6,
        op_self_ms=int(own[ops].sum()) / 1e6,
        python_ms=int(own[frames & context.on_threads(np.unique(host.thread[ops]))].sum()) / 1e6
        if frames.any()
        else None,
        runtime_ms=int(own[calls].sum()) / 1e6,
        threads=int(np.unique(host.thread[ops]).size),
        main_thread_busy_frac=main,
        main_thread_training_frac=training,
    )


def memory_facts(context: Context) -> MemoryFacts | None:
    """Allocator totals of the GPU (of the CPU where there is none); None when not recorded."""
    memory = context.trace.memory
    if not memory.ts.size:
        return None
    rows = memory.device_type == 1
    if not rows.any():
        rows = np.ones(memory.ts.size, dtype=bool)
    order = np.flatnonzero(rows)[np.argsort(memory.ts[rows], kind="stable")]
    allocated, reserved = memory.allocated[order], memory.reserved[order]
    top = int(allocated.argmax())
    return MemoryFacts(
        samples=int(order.size),
        peak_allocated_gib=int(allocated[top]) / _GIB,
        peak_reserved_gib=int(reserved.max()) / _GIB if reserved.max() >= 0 else None,
        first_allocated_gib=int(allocated[0]) / _GIB,
        last_allocated_gib=int(allocated[-1]) / _GIB,
        peak_at_ms=int(memory.ts[order[top]]) / 1e6,
    )
