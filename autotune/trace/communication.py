"""Collectives of one rank: what was sent, how long it took, how much of it nothing hides."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import numpy.typing as npt

from autotune.records.trace_comm import CollectiveRow, Communication
from autotune.trace.columns import CollectiveArgs, Host
from autotune.trace.context import Context
from autotune.trace.gpu_time import COMMUNICATION, span_ns
from autotune.trace.intervals import Intervals, overlap, subtract

Mask = npt.NDArray[np.bool_]

_KINDS = (
    ("all_gather", re.compile(r"all_?gather", re.I)),
    ("reduce_scatter", re.compile(r"reduce_?scatter", re.I)),
    ("all_reduce", re.compile(r"all_?reduce", re.I)),
    ("all_to_all", re.compile(r"all_?to_?all|alltoallv?", re.I)),
    ("broadcast", re.compile(r"broadcast", re.I)),
    ("send_recv", re.compile(r"send_?recv|\bsend|\brecv|_send|_recv|p2p", re.I)),
    ("gather", re.compile(r"gather", re.I)),
    ("scatter", re.compile(r"scatter", re.I)),
    ("reduce", re.compile(r"reduce", re.I)),
    ("barrier", re.compile(r"barrier", re.I)),
)
_ELEMENT_BYTES = {
    "double": 8, "float64": 8, "long": 8, "int64": 8, "float": 4, "float32": 4, "int": 4, "int32": 4,
    "half": 2, "float16": 2, "bfloat16": 2, "short": 2, "int16": 2, "byte": 1, "char": 1, "int8": 1,
    "uint8": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
_HOST_CALL = re.compile(r"c10d::|record_param_comms$|_c10d_functional::(?!wait_tensor|_wrap)")


def kind_of(name: str) -> str:
    """Collective kind by a kernel's or c10d's name; `unknown` for generic kernels."""
    for kind, pattern in _KINDS:
        if pattern.search(name):
            return kind
    return "unknown"


def collective_args(context: Context) -> dict[int, CollectiveArgs]:
    """Arguments per communication kernel row: its own, else those of the c10d call around its launch."""
    trace = context.trace
    rows = np.flatnonzero(context.gpu_of_class(COMMUNICATION))
    found = {
        int(row): trace.collectives[trace.gpu.collective[row]]
        for row in rows
        if trace.gpu.collective[row] >= 0
    }
    missing = [int(row) for row in rows if int(row) not in found]
    if missing and trace.host_collectives and len(trace.host):
        known = np.isin(trace.host.link, list(trace.host_collectives)) & (trace.host.kind == Host.OP)
        nearest = context.tree.nearest(known)
        source = context.gpu_source()
        for row in missing:
            call = nearest[source[row]] if source[row] >= 0 else -1
            if call >= 0:
                found[row] = trace.host_collectives[int(trace.host.link[call])]
    return found


def communication(context: Context) -> Communication:
    """Communication of this rank; exposed time is what the other GPU work does not hide."""
    gpu = context.trace.gpu
    rows = context.gpu_of_class(COMMUNICATION)
    host_ops = int(context.host_named(_HOST_CALL.match, Host.OP).sum())
    union_all, union_other = context.busy(), context.busy(~rows)
    exposed = union_all.total - union_other.total
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
        host_ops=host_ops,
        collectives=_collectives(context, union_other),
        wait_or_transfer="unknown",
    )


def element_bytes(dtype: str | None) -> int | None:
    """Bytes per element of a c10 or c10d type name."""
    return _ELEMENT_BYTES.get((dtype or "").removeprefix("c10::").lower())


def _collectives(context: Context, other: Intervals) -> list[CollectiveRow]:
    gpu, names = context.trace.gpu, context.trace.names
    args = collective_args(context)
    groups: dict[tuple[str, str, CollectiveArgs | None], list[int]] = defaultdict(list)
    for row in np.flatnonzero(context.gpu_of_class(COMMUNICATION)).tolist():
        found = args.get(row)
        kernel = names[gpu.name[row]]
        kind = kind_of(found.name) if found else "unknown"
        groups[kind if kind != "unknown" else kind_of(kernel), kernel, found].append(row)
    return sorted(
        (_row(context, other, *key, np.array(rows)) for key, rows in groups.items()),
        key=lambda item: -item.total_ms,
    )


def _row(
    context: Context,
    other: Intervals,
    kind: str,
    kernel: str,
    args: CollectiveArgs | None,
    rows: npt.NDArray[np.int64],
) -> CollectiveRow:
    gpu = context.trace.gpu
    time = gpu.dur[rows]
    mask = np.zeros(len(gpu), dtype=bool)
    mask[rows] = True
    size = element_bytes(args.dtype) if args else None
    counts = [n for n in (args.elements_in, args.elements_out) if n is not None] if args else []
    total_bytes = max(counts) * size if counts and size else None
    return CollectiveRow(
        kind=kind,
        kernel=kernel,
        count=int(rows.size),
        elements_in=args.elements_in if args else None,
        elements_out=args.elements_out if args else None,
        dtype=args.dtype if args else None,
        group_size=args.group_size if args else None,
        group=args.group if args else None,
        bytes=total_bytes,
        total_ms=int(time.sum()) / 1e6,
        exposed_ms=subtract(context.busy(mask), other).total / 1e6,
        fastest_ms=int(time.min()) / 1e6,
        median_ms=float(np.median(time)) / 1e6,
        slowest_ms=int(time.max()) / 1e6,
        bus_gb_s=_bus(kind, total_bytes, args.group_size if args else None, int(time.min())),
    )


def _bus(kind: str, size: int | None, ranks: int | None, time_ns: int) -> float | None:
    """Bus bandwidth in the convention of nccl-tests."""
    factor = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}.get(kind)
    if not size or not ranks or ranks < 2 or not time_ns or factor is None:
        return None
    return size * factor * (ranks - 1) / ranks / time_ns


def exposed_per_row(context: Context) -> npt.NDArray[np.int64]:
    """Exposed nanoseconds of each GPU row against all work but communication."""
    other = context.busy(~context.gpu_of_class(COMMUNICATION))
    ts, end = context.trace.gpu.ts, context.gpu_end
    return np.asarray((end - ts) - overlap(other, ts, end))
