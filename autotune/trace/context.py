"""One trace, prepared for analysis: host tree, launching ops, kernel classes and step regions per row."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from autotune.trace.classes import UNCLASSIFIED, KernelTable
from autotune.trace.clean import Cleaning, clean_times
from autotune.trace.columns import Gpu, Host, HostTable, Trace
from autotune.trace.intervals import Intervals, merge, union
from autotune.trace.tree import HostTree, build_tree, sort_host

I8 = npt.NDArray[np.int8]
I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MEMCPY, MEMSET = "memcpy", "memset"
LAUNCH = re.compile(
    r"(cuda|cu|hip|xpu|mtia|musa|ur|ze)\w*(Launch(Kernel|CooperativeKernel|HostFunc)?|KernelLaunch|GraphLaunch)"
)
GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch")


@dataclass(slots=True)
class Context:
    """Per-row facts that several analyses share. GPU rows are sorted by start, host rows by thread."""

    trace: Trace
    table: KernelTable
    cleaning: Cleaning
    tree: HostTree
    step_marks: Mask  # host rows that are ProfilerStep annotations
    gpu_end: I64
    launch_row: I32  # GPU row to the host row of its runtime call, -1 unknown
    op_row: I32  # GPU row to the nearest CPU op around the launch, -1 unknown
    gpu_class: I16  # GPU row to index in class_names
    class_names: list[str]
    eval_row: I32  # host row to its nearest autograd evaluate_function row, -1 outside backward
    thread_rows: dict[int, tuple[int, int]]  # thread to its first row and the row after its last

    @property
    def has_gpu(self) -> bool:
        """Whether any GPU work was recorded."""
        return len(self.trace.gpu) > 0

    def names(self, test: Callable[[str], object]) -> Mask:
        """Per name number, whether the test holds."""
        return np.fromiter((bool(test(text)) for text in self.trace.names), bool, len(self.trace.names))

    def host_named(self, test: Callable[[str], object], *kinds: Host) -> Mask:
        """Host rows of these kinds (all when none is given) whose name passes the test."""
        host = self.trace.host
        wanted = self.names(test)
        if not len(host) or not wanted.any():
            return np.zeros(len(host), dtype=bool)
        mask = wanted[host.name]
        return mask & self.of_kind(*kinds) if kinds else mask

    def of_kind(self, *kinds: Host) -> Mask:
        """Host rows of any of these kinds."""
        wanted = np.zeros(len(Host), dtype=bool)
        wanted[list(kinds)] = True
        return np.asarray(wanted[self.trace.host.kind])

    def on_threads(self, threads: npt.NDArray[np.int32]) -> Mask:
        """Host rows of these threads."""
        wanted = np.zeros(len(self.trace.threads), dtype=bool)
        wanted[threads] = True
        return np.asarray(wanted[self.trace.host.thread])

    def between(self, thread: int, low: int, high: int) -> slice:
        """Host rows of one thread that start in [low, high); the table is sorted by thread and start."""
        first, end = self.thread_rows[thread]
        ts = self.trace.host.ts[first:end]
        return slice(first + int(np.searchsorted(ts, low)), first + int(np.searchsorted(ts, high)))

    def ops_named(self, *names: str) -> Mask:
        """CPU op rows with exactly these names."""
        wanted = set(names)
        return self.host_named(lambda text: text in wanted, Host.OP)

    def op_calls(self) -> dict[str, int]:
        """Calls of each CPU op by name."""
        numbers, counts = np.unique(self.trace.host.name[self.of_kind(Host.OP)], return_counts=True)
        return {self.trace.names[n]: int(count) for n, count in zip(numbers, counts, strict=True)}

    def gpu_of_class(self, name: str) -> Mask:
        """GPU rows of one kernel class."""
        if name not in self.class_names:
            return np.zeros(len(self.trace.gpu), dtype=bool)
        return np.asarray(self.gpu_class == self.class_names.index(name))

    def gpu_under(self, rows: Mask) -> Mask:
        """GPU rows launched inside any of the host rows."""
        if not rows.any():
            return np.zeros(len(self.trace.gpu), dtype=bool)
        inside = self.tree.nearest(rows) >= 0
        return self.through_launch(inside)

    def through_launch(self, host_mask: Mask) -> Mask:
        """GPU rows whose launch, or the op around it, is one of the host rows."""
        source = np.where(self.launch_row >= 0, self.launch_row, self.op_row)
        result = np.zeros(source.size, dtype=bool)
        known = source >= 0
        result[known] = host_mask[source[known]]
        return result

    def gpu_source(self) -> I32:
        """GPU row to the host row it came from (launch call, else op), -1 unknown."""
        return np.where(self.launch_row >= 0, self.launch_row, self.op_row)

    def busy(self, mask: Mask | None = None) -> Intervals:
        """Union of GPU work, of all of it or of the masked rows."""
        ts, end = self.trace.gpu.ts, self.gpu_end
        return union(ts, end) if mask is None else union(ts[mask], end[mask])

    def host_span(self, mask: Mask) -> Intervals:
        """Union of the host rows. A row inside another row of the mask adds nothing."""
        inner = mask[np.maximum(self.tree.parent, 0)]
        inner &= self.tree.parent >= 0
        rows = np.flatnonzero(mask & ~inner).astype(np.int32)
        return merge(self.trace.host.ts[rows], self.tree.end[rows])


def prepare(trace: Trace, table: KernelTable) -> Context:
    """Clean, sort, nest and link a decoded trace."""
    cleaning = clean_times(trace)
    host, gpu = trace.host, trace.gpu
    sort_host(host)
    is_mark = np.fromiter((text.startswith("ProfilerStep#") for text in trace.names), bool, len(trace.names))
    marks = is_mark[host.name] & (host.kind == Host.ANNOTATION) if len(host) else np.zeros(0, bool)
    tree = build_tree(host, marks)
    launch_row = _launch_rows(trace)
    earlier = launched_before(trace, launch_row)
    if earlier.any():
        cleaning = replace(
            cleaning, earlier=int(earlier.sum()), earlier_ns=int(gpu.dur[earlier].sum(dtype=np.int64))
        )
        trace.gpu = gpu = gpu.where(~earlier)
        launch_row = launch_row[~earlier]
    op_row = _op_rows(trace, tree, launch_row)
    starts_eval = np.fromiter(
        (text.startswith("autograd::engine::evaluate_function") for text in trace.names),
        bool,
        len(trace.names),
    )
    is_eval = starts_eval[host.name] & (host.kind == Host.OP) if len(host) else np.zeros(0, bool)
    context = Context(
        trace=trace,
        table=table,
        cleaning=cleaning,
        tree=tree,
        step_marks=marks,
        gpu_end=gpu.ts + gpu.dur,
        launch_row=launch_row,
        op_row=op_row,
        gpu_class=np.zeros(len(gpu), dtype=np.int16),
        class_names=[*table.names, MEMCPY, MEMSET, UNCLASSIFIED],
        eval_row=tree.nearest(is_eval),
        thread_rows=_thread_rows(host),
    )
    context.gpu_class = _classify(context)
    return context


def _thread_rows(host: HostTable) -> dict[int, tuple[int, int]]:
    if not len(host):
        return {}
    firsts = np.flatnonzero(np.append(True, host.thread[1:] != host.thread[:-1])).tolist()
    return {int(host.thread[first]): (first, end) for first, end in pairwise([*firsts, len(host)])}


def _launch_rows(trace: Trace) -> I32:
    """Runtime call of each GPU operation, by correlation id."""
    host, gpu = trace.host, trace.gpu
    result = np.full(len(gpu), -1, dtype=np.int32)
    calls = np.flatnonzero(((host.kind == Host.RUNTIME) | (host.kind == Host.DRIVER)) & (host.link > 0))
    if not calls.size or not len(gpu):
        return result
    calls = calls[np.argsort(host.link[calls], kind="stable")]
    links = host.link[calls]
    at = np.searchsorted(links, gpu.correlation)
    at[at == links.size] = 0
    found = (links[at] == gpu.correlation) & (gpu.correlation > 0)
    result[found] = calls[at[found]]
    return result


def launched_before(trace: Trace, launch_row: I32) -> Mask:
    """GPU work whose launch the recording missed because it began later.

    A CPU that runs ahead of its GPU leaves a queue: what the recording finds in it belongs to an earlier
    step. A stream works in the order of the launches, so this is what lies in front of the first work with a
    known launch; on a stream without such work, what begins before the first launch call.
    """
    gpu, host = trace.gpu, trace.host
    unknown = launch_row < 0
    found = np.zeros(len(gpu), dtype=bool)
    if not unknown.any() or unknown.all():
        return found
    calls = host.kind == Host.RUNTIME
    calls |= host.kind == Host.DRIVER
    calls &= np.fromiter((LAUNCH.match(text) is not None for text in trace.names), bool, len(trace.names))[
        host.name
    ]
    first_call = int(host.ts[calls].min()) if calls.any() else None
    order = np.lexsort((gpu.ts, gpu.stream, gpu.device))
    device, stream = gpu.device[order], gpu.stream[order]
    bounds = np.flatnonzero((device[1:] != device[:-1]) | (stream[1:] != stream[:-1])) + 1
    for rows in np.split(order, bounds):
        known = np.flatnonzero(~unknown[rows])
        if known.size:
            found[rows[: known[0]]] = True
        elif first_call is not None:
            found[rows[gpu.ts[rows] < first_call]] = True
    return found


def _op_rows(trace: Trace, tree: HostTree, launch_row: I32) -> I32:
    """Nearest CPU op around each launch; by External id where no launch call is known."""
    host, gpu = trace.host, trace.gpu
    result = np.full(len(gpu), -1, dtype=np.int32)
    if not len(host) or not len(gpu):
        return result
    nearest = tree.nearest(host.kind == Host.OP)
    known = launch_row >= 0
    result[known] = nearest[launch_row[known]]
    missing = np.flatnonzero((result < 0) & (gpu.external > 0))
    if missing.size:
        ops = np.flatnonzero((host.kind == Host.OP) & (host.link > 0))
        if ops.size:
            ops = ops[np.argsort(host.link[ops], kind="stable")]
            links = host.link[ops]
            at = np.minimum(np.searchsorted(links, gpu.external[missing]), links.size - 1)
            found = links[at] == gpu.external[missing]
            result[missing[found]] = ops[at[found]]
    return result


def _classify(context: Context) -> I16:
    """Class of each GPU row: by kernel name, else by the nearest op the table knows."""
    trace, gpu, names = context.trace, context.trace.gpu, context.class_names
    number = {name: index for index, name in enumerate(names)}
    result = np.full(len(gpu), number[UNCLASSIFIED], dtype=np.int16)
    result[gpu.kind == Gpu.MEMCPY] = number[MEMCPY]
    result[gpu.kind == Gpu.MEMSET] = number[MEMSET]
    kernels = gpu.kind == Gpu.KERNEL
    by_name = np.full(len(trace.names), -1, dtype=np.int16)
    for name in np.unique(gpu.name[kernels]):
        found = context.table.of_kernel(trace.names[name])
        if found is not None:
            by_name[name] = number[found]
    known = by_name[gpu.name]
    named = kernels & (known >= 0)
    result[named] = known[named]
    silent = np.flatnonzero(kernels & (known < 0))
    if silent.size and len(trace.host):
        result[silent] = _class_by_op(context, silent, number)
    return result


def _class_by_op(context: Context, silent: I64, number: dict[str, int]) -> I16:
    host = context.trace.host
    callers = context.of_kind(Host.OP, Host.ANNOTATION)
    by_name = np.full(len(context.trace.names), -1, dtype=np.int16)
    for name in np.unique(host.name[callers]):
        found = context.table.of_op(context.trace.names[name])
        if found is not None:
            by_name[name] = number[found]
    nearest = context.tree.nearest(callers & (by_name[host.name] >= 0))
    source = context.gpu_source()[silent]
    row = np.where(source >= 0, nearest[np.maximum(source, 0)], -1)
    found_class = by_name[host.name[np.maximum(row, 0)]]
    return np.where(row >= 0, found_class, np.int16(number[UNCLASSIFIED])).astype(np.int16)
