"""Collectives of one rank: what was sent, how long it took, how much of it nothing hides."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import numpy.typing as npt

from autotune.records.trace_comm import CollectiveRow, Communication, FsdpUnit
from autotune.trace.collective_calls import HOST_CALL, Call, call_bytes, host_call_args
from autotune.trace.columns import CollectiveArgs, Host
from autotune.trace.context import Context
from autotune.trace.gpu_time import COMMUNICATION, span_ns
from autotune.trace.intervals import Intervals, subtract

_BUS_FACTOR = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
_FSDP = re.compile(r"FSDP::(all_gather|post_backward_reduce|all_gather_copy_out)\b( \((.*)\))?")


def communication(context: Context, calls: dict[int, Call]) -> Communication:
    """Communication of this rank; exposed time is what the other GPU work does not hide."""
    gpu = context.trace.gpu
    rows = context.gpu_of_class(COMMUNICATION)
    on_host = context.host_named(HOST_CALL.match, Host.OP)
    host_ops = int(on_host.sum())
    host_calls = int((context.tree.outermost(on_host) == np.arange(on_host.size)).sum()) if host_ops else 0
    given = host_call_args(context)
    other = context.busy(~rows)
    exposed = context.busy().total - other.total
    mine = context.busy(rows).total
    span = span_ns(context)[1] - span_ns(context)[0] if context.has_gpu else 0
    return Communication(
        present=bool(rows.any() or host_ops),
        kernels=int(rows.sum()),
        total_ms=int(gpu.dur[rows].sum()) / 1e6 if context.has_gpu else None,
        union_ms=mine / 1e6 if context.has_gpu else None,
        exposed_ms=exposed / 1e6 if context.has_gpu else None,
        exposed_frac=exposed / span if span else None,
        overlap_frac=1 - exposed / mine if mine else None,
        pipeline_wait_frac=_pipeline_wait(context, calls, other, span),
        host_ops=host_ops,
        host_calls=host_calls,
        host_bytes=sum(sizes) if (sizes := [n for n in map(call_bytes, given) if n is not None]) else None,
        host_group_sizes=sorted({args.group_size for args in given if args.group_size}),
        collectives=_collectives(context, calls, other),
        wait_or_transfer="unknown",
    )


def _exposed(context: Context, rows: list[int], other: Intervals) -> int:
    mask = np.zeros(len(context.trace.gpu), dtype=bool)
    mask[rows] = True
    return subtract(context.busy(mask), other).total


def _pipeline_wait(context: Context, calls: dict[int, Call], other: Intervals, span: int) -> float | None:
    """Exposed point-to-point time as a share of the span: the visible part of a pipeline's bubble."""
    rows = [row for row, call in calls.items() if call.kind == "send_recv"]
    return _exposed(context, rows, other) / span if rows and span else None


def _collectives(context: Context, calls: dict[int, Call], other: Intervals) -> list[CollectiveRow]:
    gpu, names = context.trace.gpu, context.trace.names
    groups: dict[tuple[str, str, CollectiveArgs | None], list[int]] = defaultdict(list)
    for row, call in calls.items():
        groups[call.kind, names[gpu.name[row]], call.args].append(row)
    found = [_row(context, other, *key, rows) for key, rows in groups.items()]
    return sorted(found, key=lambda item: -item.total_ms)


def _row(
    context: Context, other: Intervals, kind: str, kernel: str, args: CollectiveArgs | None, rows: list[int]
) -> CollectiveRow:
    time: npt.NDArray[np.int64] = context.trace.gpu.dur[rows]
    size = call_bytes(args)
    return CollectiveRow(
        kind=kind,
        kernel=kernel,
        count=len(rows),
        elements_in=args.elements_in if args else None,
        elements_out=args.elements_out if args else None,
        dtype=args.dtype if args else None,
        group_size=args.group_size if args else None,
        group=args.group if args else None,
        bytes=size,
        total_ms=int(time.sum()) / 1e6,
        exposed_ms=_exposed(context, rows, other) / 1e6,
        fastest_ms=int(time.min()) / 1e6,
        median_ms=float(np.median(time)) / 1e6,
        slowest_ms=int(time.max()) / 1e6,
        bus_gb_s=_bus(kind, size, args.group_size if args else None, int(time.min())),
    )


def _bus(kind: str, size: int | None, ranks: int | None, time_ns: int) -> float | None:
    """Bus bandwidth in the convention of nccl-tests."""
    factor = _BUS_FACTOR.get(kind)
    if not size or not ranks or ranks < 2 or not time_ns or factor is None:
        return None
    return size * factor * (ranks - 1) / ranks / time_ns


def fsdp_units(context: Context, calls: dict[int, Call]) -> list[FsdpUnit]:
    """All-gathers and reduce-scatters by the FSDP2 unit whose annotation launched them."""
    host, names, gpu = context.trace.host, context.trace.names, context.trace.gpu
    marks = context.host_named(_FSDP.match, Host.ANNOTATION, Host.OP)
    if not marks.any():
        return []
    nearest, source = context.tree.nearest(marks), context.gpu_source()
    other = context.busy(~context.gpu_of_class(COMMUNICATION))
    units: dict[str, dict[str, list[int]]] = {}
    for row, call in calls.items():
        mark = nearest[source[row]] if source[row] >= 0 else -1
        match = _FSDP.match(names[host.name[mark]]) if mark >= 0 else None
        if match is not None and call.kind in ("all_gather", "reduce_scatter", "all_reduce"):
            unit = units.setdefault(match.group(3) or "(root)", {"all_gather": [], "reduce": []})
            unit["all_gather" if call.kind == "all_gather" else "reduce"].append(row)
    return [
        FsdpUnit(
            name=name,
            all_gathers=len(unit["all_gather"]),
            reduce_scatters=len(unit["reduce"]),
            all_gather_ms=int(gpu.dur[unit["all_gather"]].sum()) / 1e6,
            reduce_scatter_ms=int(gpu.dur[unit["reduce"]].sum()) / 1e6,
            exposed_ms=_exposed(context, unit["all_gather"] + unit["reduce"], other) / 1e6,
        )
        for name, unit in units.items()
    ]
