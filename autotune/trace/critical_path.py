"""The chain of GPU work, launches and host code that bounds the traced span, walked from its end.

A GPU operation waits for whichever came last: the operation before it on its stream, its launch call, or
(when both were over long before) the operation of another stream that ended just then. Host code waits
for the GPU where it synchronises, and a thread that begins late waits for the thread that fed it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autotune.records.trace_time import CriticalPath, PathItem, PathPart
from autotune.trace.columns import Host
from autotune.trace.context import Context
from autotune.trace.gpu_time import COMMUNICATION
from autotune.trace.intervals import Intervals, clip, intersect, merge, overlap, subtract, union
from autotune.trace.launches import launching_threads
from autotune.trace.syncs import SYNC_CALL

I64 = npt.NDArray[np.int64]

_LATENCY_NS = 20_000  # a start later than this after launch and predecessor waits for something else
_BREAK_NS = 100_000  # a longer pause of a thread may mean that another thread does its work
_TOP = 30


@dataclass(slots=True)
class _Walk:
    """Pieces of the path, last first: GPU rows, host stretches by thread, and gaps by kind."""

    gpu_rows: list[int] = field(default_factory=list)
    gpu_cut: list[tuple[int, int]] = field(default_factory=list)
    host: list[tuple[int, int, int]] = field(default_factory=list)
    gaps: dict[str, int] = field(default_factory=dict)

    def gap(self, kind: str, time: int) -> None:
        if time > 0:
            self.gaps[kind] = self.gaps.get(kind, 0) + time


@dataclass(slots=True)
class _Maps:
    """Look-ups of the walk."""

    start: I64
    end: I64
    before: I64  # previous operation on the same stream, -1 for none
    launch: I64  # end time of the launch call, -1 unknown
    launch_thread: I64
    by_end: I64  # GPU rows ordered by end
    ends: I64
    sync_end: dict[int, I64]  # per thread: end times of synchronising calls
    sync_start: dict[int, I64]
    blocks: dict[int, Intervals]  # per launching thread: stretches of activity without long pauses


def critical_path(context: Context) -> CriticalPath | None:
    """Walk the path; None for traces without GPU work or without host events."""
    if not context.has_gpu or not len(context.trace.host):
        return None
    walk = _Walk()
    low = min(int(context.trace.host.ts.min()), int(context.trace.gpu.ts.min()))
    high = int(context.gpu_end.max())
    _run(_maps(context), walk, low, high, int(context.gpu_end.argmax()))
    return _summary(context, walk, high - low)


def _maps(context: Context) -> _Maps:
    gpu, host = context.trace.gpu, context.trace.host
    order = np.lexsort((gpu.ts, gpu.stream, gpu.device))
    same = (gpu.stream[order][1:] == gpu.stream[order][:-1]) & (
        gpu.device[order][1:] == gpu.device[order][:-1]
    )
    before = np.full(len(gpu), -1, dtype=np.int64)
    before[order[1:][same]] = order[:-1][same]
    known = context.launch_row >= 0
    row = np.maximum(context.launch_row, 0)
    syncs = np.flatnonzero(context.host_named(SYNC_CALL.match, Host.RUNTIME, Host.DRIVER))
    ends = host.ts[syncs] + host.dur[syncs]
    threads = host.thread[syncs]
    by_end = np.argsort(context.gpu_end, kind="stable")
    active = launching_threads(context) & context.of_kind(Host.OP, Host.RUNTIME, Host.DRIVER)
    return _Maps(
        start=gpu.ts,
        end=context.gpu_end,
        before=before,
        launch=np.where(known, host.ts[row] + host.dur[row], -1),
        launch_thread=np.where(known, host.thread[row], -1).astype(np.int64),
        by_end=by_end,
        ends=context.gpu_end[by_end],
        sync_end={int(t): ends[threads == t] for t in np.unique(threads)},
        sync_start={int(t): host.ts[syncs][threads == t] for t in np.unique(threads)},
        blocks={
            int(t): _blocks(context.host_span(active & (host.thread == t)))
            for t in np.unique(host.thread[active])
        },
    )


def _run(maps: _Maps, walk: _Walk, low: int, high: int, row: int) -> None:
    time, on_gpu, thread = high, True, -1
    for _ in range(4 * maps.start.size + 1000):
        if time <= low:
            return
        if on_gpu:
            begin = min(int(maps.start[row]), time)
            walk.gpu_rows.append(row)
            walk.gpu_cut.append((begin, time))
            time = begin
            previous = int(maps.before[row])
            ended = min(int(maps.end[previous]), time) if previous >= 0 else -1
            launched = min(int(maps.launch[row]), time)
            latest = max(ended, launched)
            other = _ended_by(maps, time) if time - latest > _LATENCY_NS else -1
            if other >= 0 and maps.end[other] > latest:
                done = int(maps.end[other])
                walk.gap("queue", time - done)
                row, time = other, done
            elif latest < 0:
                walk.gap("idle", time - low)
                return
            elif ended >= launched:
                walk.gap("queue", time - ended)
                row, time = previous, ended
            else:
                walk.gap("queue", time - launched)
                time, on_gpu, thread = launched, False, int(maps.launch_thread[row])
            continue
        block = _block(maps, thread, time)
        begin, end = block if block is not None else (low, low)
        if end < time:  # between two stretches: another thread's work, or this thread's untraced code
            feeder = _feeder(maps, thread, end, time)
            stop = end if feeder is None else feeder[1]
            walk.host.append((thread, stop, time))
            time, thread = stop, thread if feeder is None else feeder[0]
            continue
        wait = _last_wait(maps, thread, begin, time)
        if wait is None:
            walk.host.append((thread, begin, time))
            time = begin
            continue
        started, ended = wait
        done = _ended_by(maps, min(ended, time))
        if done >= 0 and maps.end[done] > started:
            walk.host.append((thread, int(maps.end[done]), time))
            row, time, on_gpu = done, int(maps.end[done]), True
        else:
            walk.host.append((thread, started, time))
            time = started


def _blocks(active: Intervals) -> Intervals:
    return merge(active.starts, active.ends + _BREAK_NS)


def _block(maps: _Maps, thread: int, time: int) -> tuple[int, int] | None:
    """The last stretch of a thread's activity that begins before this time."""
    blocks = maps.blocks.get(thread)
    at = int(np.searchsorted(blocks.starts, time, side="left")) - 1 if blocks is not None else -1
    if blocks is None or at < 0:
        return None
    return int(blocks.starts[at]), int(blocks.ends[at]) - _BREAK_NS


def _feeder(maps: _Maps, thread: int, low: int, high: int) -> tuple[int, int] | None:
    """The thread that was active for most of a pause, and when it last was."""
    best, most = None, (high - low) // 2
    for other, blocks in maps.blocks.items():
        covered = clip(blocks, low, high)
        if other != thread and covered.total > most and len(covered):
            best, most = (other, min(int(covered.ends[-1]), high)), covered.total
    return best


def _last_wait(maps: _Maps, thread: int, low: int, time: int) -> tuple[int, int] | None:
    """Start and end of the last synchronisation of a thread in [low, time)."""
    ends = maps.sync_end.get(thread)
    if ends is None:
        return None
    at = int(np.searchsorted(maps.sync_start[thread], time, side="left")) - 1
    if at < 0 or ends[at] <= low:
        return None
    return int(maps.sync_start[thread][at]), int(ends[at])


def _ended_by(maps: _Maps, time: int) -> int:
    """The GPU operation that ended last, at this time or before."""
    at = int(np.searchsorted(maps.ends, time, side="right")) - 1
    return int(maps.by_end[at]) if at >= 0 else -1


def _summary(context: Context, walk: _Walk, span: int) -> CriticalPath:
    gpu, names = context.trace.gpu, context.trace.names
    rows = np.array(walk.gpu_rows, dtype=np.int64)
    times = np.array([end - begin for begin, end in walk.gpu_cut], dtype=np.int64)
    comm = context.gpu_of_class(COMMUNICATION)[rows]
    totals = {"gpu": int(times[~comm].sum()), "communication": int(times[comm].sum())}
    items: dict[tuple[str, str], list[int]] = {}
    for row, time, is_comm in zip(rows.tolist(), times.tolist(), comm.tolist(), strict=True):
        _add(items, names[gpu.name[row]], "communication" if is_comm else "gpu", 1, time)
    for kind, time in walk.gaps.items():
        totals[kind] = totals.get(kind, 0) + time
    for thread in {piece[0] for piece in walk.host}:
        pieces = [(low, high) for owner, low, high in walk.host if owner == thread and high > low]
        if pieces:
            _host_part(context, thread, pieces, totals, items)
    top = sorted(items.items(), key=lambda item: -item[1][1])[:_TOP]
    return CriticalPath(
        span_ms=span / 1e6,
        parts=[
            PathPart.model_validate(
                {"kind": kind, "total_ms": time / 1e6, "share_frac": time / span if span else 0.0}
            )
            for kind, time in sorted(totals.items(), key=lambda item: -item[1])
            if time
        ],
        top=[
            PathItem(name=name, kind=kind, count=count, total_ms=time / 1e6)
            for (name, kind), (count, time) in top
        ],
    )


def _add(items: dict[tuple[str, str], list[int]], name: str, kind: str, count: int, time: int) -> None:
    entry = items.setdefault((name, kind), [0, 0])
    entry[0] += count
    entry[1] += time


def _host_part(
    context: Context,
    thread: int,
    pieces: list[tuple[int, int]],
    totals: dict[str, int],
    items: dict[tuple[str, str], list[int]],
) -> None:
    """Divide a thread's share of the path into launches, waits and ops: the innermost event counts."""
    host, names = context.trace.host, context.trace.names
    covered = union(np.array([low for low, _ in pieces]), np.array([high for _, high in pieces]))
    first, end = context.thread_rows[thread]
    inside = overlap(covered, host.ts[first:end], context.tree.end[first:end])
    inside[context.step_marks[first:end]] = 0
    own = inside.copy()
    child = np.flatnonzero((context.tree.parent[first:end] >= 0) & (inside > 0))
    np.subtract.at(own, context.tree.parent[first:end][child] - first, inside[child])
    calls = context.of_kind(Host.RUNTIME, Host.DRIVER)[first:end]
    waits = context.host_named(SYNC_CALL.match, Host.RUNTIME, Host.DRIVER)[first:end]
    sync_time, launch_time = int(own[waits].sum()), int(own[calls & ~waits].sum())
    totals["sync"] = totals.get("sync", 0) + sync_time
    totals["launch"] = totals.get("launch", 0) + launch_time
    totals["host"] = totals.get("host", 0) + covered.total - sync_time - launch_time
    number = host.name[first:end]
    count = np.bincount(number[inside > 0])
    time = np.bincount(number, weights=own)
    kinds = {"sync": waits, "launch": calls & ~waits, "host": ~calls}
    names_of = {kind: set(np.unique(number[mask]).tolist()) for kind, mask in kinds.items()}
    for name in np.flatnonzero(time[: count.size] > 0).tolist():
        kind = next(kind for kind in kinds if name in names_of[kind])
        _add(items, names[name], kind, int(count[name]), int(time[name]))
    untraced = subtract(covered, _traced(context, first, end, covered))
    if untraced.total:
        _add(items, "code outside traced ops", "host", 1, untraced.total)


def _traced(context: Context, first: int, end: int, covered: Intervals) -> Intervals:
    roots = first + np.flatnonzero(context.tree.parent[first:end] < 0)
    return intersect(covered, union(context.trace.host.ts[roots], context.tree.end[roots]))
