"""Every communication kernel of a rank with what is known about the call: kind, sizes, group."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autotune.trace.columns import CollectiveArgs, Host
from autotune.trace.context import Context
from autotune.trace.gpu_time import COMMUNICATION

_KINDS = (
    ("all_gather", re.compile(r"all_?gather", re.I)),
    ("reduce_scatter", re.compile(r"reduce_?scatter", re.I)),
    ("all_reduce", re.compile(r"all_?reduce", re.I)),
    ("all_to_all", re.compile(r"all_?to_?all|alltoallv?", re.I)),
    ("broadcast", re.compile(r"broadcast", re.I)),
    ("send_recv", re.compile(r"send_?recv|\bi?send|\bi?recv|_send|_recv|p2p|coalesced", re.I)),
    ("gather", re.compile(r"gather", re.I)),
    ("scatter", re.compile(r"scatter", re.I)),
    ("reduce", re.compile(r"reduce", re.I)),
    ("barrier", re.compile(r"barrier", re.I)),
)
_CALL = re.compile(r"(nccl|gloo|mpi|ucc|xccl):(.+)|(c10d|_c10d_functional|symm_mem)::(.+)")
HOST_CALL = re.compile(r"c10d::|record_param_comms$|_c10d_functional::(?!wait_tensor|_wrap)")
_ELEMENT_BYTES = {
    "double": 8, "float64": 8, "long": 8, "int64": 8, "float": 4, "float32": 4, "int": 4, "int32": 4,
    "half": 2, "float16": 2, "bfloat16": 2, "short": 2, "int16": 2, "byte": 1, "char": 1, "int8": 1,
    "uint8": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """What one communication kernel did."""

    kind: str
    args: CollectiveArgs | None


def kind_of(name: str) -> str:
    """Collective kind by a kernel's or c10d's name; `unknown` for generic kernels."""
    for kind, pattern in _KINDS:
        if pattern.search(name):
            return kind
    return "unknown"


def element_bytes(dtype: str | None) -> int | None:
    """Bytes per element of a c10 or c10d type name."""
    return _ELEMENT_BYTES.get((dtype or "").removeprefix("c10::").lower())


def call_bytes(args: CollectiveArgs | None) -> int | None:
    """The larger of a call's input and output; None when sizes or type are unknown."""
    if args is None:
        return None
    size = element_bytes(args.dtype)
    counts = [count for count in (args.elements_in, args.elements_out) if count is not None]
    return max(counts) * size if counts and size else None


def host_call_args(context: Context) -> list[CollectiveArgs]:
    """Arguments of every collective called on the CPU inside the window."""
    trace = context.trace
    if not trace.host_collectives or not len(trace.host):
        return []
    known = np.isin(trace.host.link, list(trace.host_collectives)) & (trace.host.kind == Host.OP)
    return [trace.host_collectives[int(link)] for link in trace.host.link[known].tolist()]


def collective_calls(context: Context) -> dict[int, Call]:
    """GPU row to call. The c10d call around the launch outranks the kernel's own symbol."""
    trace, gpu = context.trace, context.trace.gpu
    rows = np.flatnonzero(context.gpu_of_class(COMMUNICATION))
    if not rows.size:
        return {}
    around = _around(context, rows)
    given = _host_args(context, rows)
    found = {}
    for at, row in enumerate(rows.tolist()):
        own = gpu.collective[row]
        args = trace.collectives[own] if own >= 0 else given[at]
        names = [args.name if args else "", around[at] or "", trace.names[gpu.name[row]]]
        kinds = [kind for name in names if name and (kind := kind_of(name)) != "unknown"]
        found[row] = Call(kinds[0] if kinds else "unknown", args)
    return found


def _around(context: Context, rows: npt.NDArray[np.int64]) -> list[str | None]:
    """The nearest nccl: annotation or c10d op around each launch."""
    host, names = context.trace.host, context.trace.names
    if not len(host):
        return [None] * rows.size
    named = context.host_named(_CALL.match, Host.OP, Host.ANNOTATION)
    source = context.gpu_source()[rows]
    nearest = np.where(source >= 0, context.tree.nearest(named)[np.maximum(source, 0)], -1)
    return [names[host.name[row]] if row >= 0 else None for row in nearest.tolist()]


def _host_args(context: Context, rows: npt.NDArray[np.int64]) -> list[CollectiveArgs | None]:
    """Arguments of the c10d op around each launch, where the kernel carries none."""
    trace = context.trace
    if not trace.host_collectives or not len(trace.host):
        return [None] * rows.size
    known = np.isin(trace.host.link, list(trace.host_collectives)) & (trace.host.kind == Host.OP)
    source = context.gpu_source()[rows]
    nearest = np.where(source >= 0, context.tree.nearest(known)[np.maximum(source, 0)], -1)
    return [
        trace.host_collectives[int(trace.host.link[row])] if row >= 0 else None for row in nearest.tolist()
    ]
