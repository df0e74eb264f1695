"""Exact arithmetic on sets of time intervals, in whole nanoseconds.

An interval set is two equally long int64 arrays, starts and ends, sorted and disjoint.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
_EMPTY = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Sorted, disjoint, non-empty half-open intervals."""

    starts: I64
    ends: I64

    @property
    def total(self) -> int:
        """Covered time."""
        return int((self.ends - self.starts).sum())

    def __len__(self) -> int:
        return int(self.starts.size)


NOTHING = Intervals(_EMPTY, _EMPTY)


def union(starts: I64, ends: I64) -> Intervals:
    """The set covered by any of the intervals; empty and negative ones count nothing."""
    return merge(starts, ends.copy())


def merge(starts: I64, ends: I64) -> Intervals:
    """Like `union`, but `ends` is overwritten: for large arrays that the caller gives away."""
    real = ends > starts
    if not real.all():
        starts, ends = starts[real], ends[real]
    if not starts.size:
        return NOTHING
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        del order
    np.maximum.accumulate(ends, out=ends)
    fresh = np.empty(starts.size, dtype=bool)
    fresh[0] = True
    np.greater(starts[1:], ends[:-1], out=fresh[1:])
    starts = starts[fresh]
    fresh[:-1] = fresh[1:]
    fresh[-1] = True
    return Intervals(starts, ends[fresh])


def gaps(covered: Intervals, low: int, high: int) -> Intervals:
    """What of [low, high) the set leaves uncovered."""
    inner = clip(covered, low, high)
    starts = np.concatenate(([low], inner.ends)).astype(np.int64)
    ends = np.concatenate((inner.starts, [high])).astype(np.int64)
    real = ends > starts
    return Intervals(starts[real], ends[real])


def clip(covered: Intervals, low: int, high: int) -> Intervals:
    """The part of the set inside [low, high)."""
    starts, ends = np.maximum(covered.starts, low), np.minimum(covered.ends, high)
    real = ends > starts
    return Intervals(starts[real], ends[real])


def covered_before(covered: Intervals, times: I64) -> I64:
    """For each time, how much of the set lies before it."""
    if not len(covered):
        return np.zeros(times.size, dtype=np.int64)
    sums = np.concatenate(([0], np.cumsum(covered.ends - covered.starts)))
    index = np.searchsorted(covered.starts, times, side="right")
    before = sums[index]
    inside = index > 0
    over = np.zeros(times.size, dtype=np.int64)
    over[inside] = np.maximum(covered.ends[index[inside] - 1] - times[inside], 0)
    return np.asarray(before - over, dtype=np.int64)


def overlap(covered: Intervals, starts: I64, ends: I64) -> I64:
    """For each interval, how much of it the set covers."""
    return covered_before(covered, np.maximum(starts, ends)) - covered_before(covered, starts)


def intersect(one: Intervals, other: Intervals) -> Intervals:
    """What both sets cover."""
    if len(one) > len(other):
        one, other = other, one
    if not len(one):
        return NOTHING
    first = np.searchsorted(other.ends, one.starts, side="right")
    last = np.searchsorted(other.starts, one.ends, side="left")
    pieces = np.maximum(last - first, 0)
    mine = np.repeat(np.arange(len(one)), pieces)
    theirs = np.arange(mine.size) + np.repeat(first - (np.cumsum(pieces) - pieces), pieces)
    return Intervals(
        np.maximum(one.starts[mine], other.starts[theirs]), np.minimum(one.ends[mine], other.ends[theirs])
    )


def subtract(one: Intervals, other: Intervals) -> Intervals:
    """What the first set covers and the second does not."""
    if not len(one) or not len(other):
        return one
    return intersect(one, gaps(other, int(one.starts[0]), int(one.ends[-1])))


def depth_time(starts: I64, ends: I64, at_least: int) -> int:
    """Time during which at least so many of the intervals are open."""
    real = ends > starts
    starts, ends = starts[real], ends[real]
    if starts.size < at_least:
        return 0
    times = np.concatenate((starts, ends))
    steps = np.concatenate((np.ones(starts.size, np.int32), np.full(ends.size, -1, np.int32)))
    order = np.lexsort((steps, times))
    depth = np.cumsum(steps[order])
    times = times[order]
    return int(np.diff(times)[depth[:-1] >= at_least].sum())
