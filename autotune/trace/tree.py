"""Nesting of host events: who called whom, per thread, from times alone.

The host table is put in (thread, start, longest first) order, so a row's parent always stands before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from autotune.trace.columns import Host, HostTable

I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_ROUNDS = 8
_ROUNDING_NS = 2_000  # writers that round to microseconds let a child outlive its parent by this much


@dataclass(frozen=True, slots=True)
class HostTree:
    """Parents and depths, by row of the sorted host table."""

    parent: I32  # -1 for roots
    levels: list[I32]  # rows by depth, roots left out
    end: I64  # end times, cut to the parent's end
    cut_rows: int  # rows that outlived their parent by more than rounding

    def nearest(self, mask: Mask) -> I32:
        """For each row the nearest row, itself or an ancestor, where the mask holds; else -1."""
        result = np.where(mask, np.arange(mask.size, dtype=np.int32), np.int32(-1)).astype(np.int32)
        for rows in self.levels:
            open_rows = rows[result[rows] < 0]
            result[open_rows] = result[self.parent[open_rows]]
        return result

    def outermost(self, mask: Mask) -> I32:
        """For each row the farthest row, itself or an ancestor, where the mask holds; else -1."""
        result = np.where(mask, np.arange(mask.size, dtype=np.int32), np.int32(-1)).astype(np.int32)
        for rows in self.levels:
            above = result[self.parent[rows]]
            found = above >= 0
            result[rows[found]] = above[found]
        return result

    def above(self, rows: I32) -> I32:
        """Parents of the rows, -1 kept."""
        return np.where(rows >= 0, self.parent[np.maximum(rows, 0)], np.int32(-1)).astype(np.int32)

    def self_time(self, ts: I64) -> I64:
        """Duration without the time of children."""
        own = self.end - ts
        inner = np.flatnonzero(self.parent >= 0)
        np.subtract.at(own, self.parent[inner], (self.end - ts)[inner])
        return own


def sort_host(host: HostTable) -> None:
    """Reorder the table by thread, start, longest first (in place, one column at a time)."""
    if not len(host):
        return
    if host.ts.min() < 0 or (host.ts + host.dur).max() >= 2**62 // max(int(host.thread.max()) + 1, 1):
        order = np.lexsort((-host.dur, host.ts, host.thread))
    else:
        span = int((host.ts + np.maximum(host.dur, 0)).max()) + 2
        key = host.thread.astype(np.int64) * span + host.ts
        order = np.argsort(key, kind="stable")
        key = key[order]
        _longest_first(order, key, host.dur)
    for column in ("ts", "dur", "name", "kind", "thread", "link", "sequence", "forward", "shape"):
        setattr(host, column, getattr(host, column)[order])


def _longest_first(order: I64, key: I64, dur: I64 | I32) -> None:
    """Within runs of equal keys put the longest event first."""
    same = key[1:] == key[:-1]
    if not same.any():
        return
    edges = np.diff(np.concatenate(([0], same.astype(np.int8), [0])))
    for start, end in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) + 1, strict=True):
        rows = order[start:end]
        order[start:end] = rows[np.argsort(-dur[rows], kind="stable")]


def build_tree(host: HostTable, skip: Mask) -> HostTree:
    """Nest a sorted host table. Rows in `skip` (profiler step marks) are roots without children."""
    count = len(host)
    end = host.ts + np.maximum(host.dur, 0)
    parent = np.full(count, -1, dtype=np.int32)
    bounds = np.flatnonzero(np.concatenate(([True], host.thread[1:] != host.thread[:-1], [True])))
    by_level: list[list[I32]] = []
    cut_rows = 0
    for low, high in pairwise(bounds.tolist()) if count else ():
        rows = (low + np.flatnonzero(~skip[low:high])).astype(np.int32)
        if not rows.size:
            continue
        levels, cut = _nest_thread(host, rows, end, parent)
        cut_rows += cut
        for depth, level in enumerate(levels[1:]):
            if depth == len(by_level):
                by_level.append([])
            by_level[depth].append(level)
    return HostTree(parent, [np.concatenate(parts) for parts in by_level], end, cut_rows)


def _nest_thread(host: HostTable, rows: I32, end: I64, parent: I32) -> tuple[list[I32], int]:
    """Nest one thread's rows: sets their parents, cuts their ends; rows by depth and the number cut."""
    starts = host.ts[rows]
    ends = np.maximum(end[rows], starts + 1)
    frame = host.kind[rows] == Host.PYTHON
    cut_rows = 0
    for attempt in range(_ROUNDS):
        levels, up = _nest(starts, ends)
        late = np.flatnonzero((up >= 0) & (ends > ends[np.maximum(up, 0)]))
        if not late.size:
            break
        over = ends[late] - ends[up[late]] > _ROUNDING_NS
        interleaved = over & frame[up[late]]
        if attempt == 0:
            cut_rows = int((over & ~interleaved).sum())
        if interleaved.any() and attempt < _ROUNDS - 1:
            _close_frames(starts, ends, up, frame, late[interleaved])
            continue
        for level in levels[1:]:
            ends[level] = np.maximum(np.minimum(ends[level], ends[up[level]]), starts[level] + 1)
    parent[rows] = np.where(up >= 0, rows[np.maximum(up, 0)], -1)
    end[rows] = np.maximum(np.minimum(end[rows], ends), starts)
    return [rows[level] for level in levels], cut_rows


def _close_frames(starts: I64, ends: I64, up: I32, frame: Mask, late: I64) -> None:
    """End Python frames where a range begins that outlives them: `__enter__` frames of record_function."""
    child, above = late, up[late]
    while child.size:
        outlived = frame[above] & (ends[above] < ends[child])
        child, above = child[outlived], above[outlived]
        np.minimum.at(ends, above, np.maximum(starts[child], starts[above] + 1))
        more = up[above] >= 0
        child, above = child[more], up[above[more]]


def _nest(starts: I64, ends: I64) -> tuple[list[I32], I32]:
    """Rows by depth, and each row's parent, for events sorted by start."""
    count = starts.size
    ended = np.searchsorted(np.sort(ends), starts, side="right").astype(np.int32)
    depth = (np.arange(count, dtype=np.int32) - ended).astype(np.int16)
    order = np.argsort(depth, kind="stable").astype(np.int32)
    bounds = np.searchsorted(depth[order], np.arange(int(depth.max()) + 2))
    levels = [order[low:high] for low, high in pairwise(bounds)]
    parent = np.full(count, -1, dtype=np.int32)
    for upper, lower in pairwise(levels):
        parent[lower] = upper[np.searchsorted(upper, lower) - 1]
    return levels, parent
