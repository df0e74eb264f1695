"""Interval arithmetic against the obvious point-by-point way."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autotune.trace.intervals import (
    Intervals,
    clip,
    covered_before,
    depth_time,
    gaps,
    intersect,
    overlap,
    subtract,
    union,
)

HORIZON = 60
pairs = st.lists(st.tuples(st.integers(0, HORIZON), st.integers(0, HORIZON)), max_size=12)


def make(spans: list[tuple[int, int]]) -> Intervals:
    starts = np.array([start for start, _ in spans], dtype=np.int64)
    ends = np.array([end for _, end in spans], dtype=np.int64)
    return union(starts, ends)


def points(spans: list[tuple[int, int]]) -> set[int]:
    return {point for start, end in spans for point in range(start, end)}


def as_points(found: Intervals) -> set[int]:
    assert (found.ends > found.starts).all()
    assert (
        (found.starts[1:] > found.ends[:-1]).all()
        or len(found) < 2
        or (found.starts[1:] >= found.ends[:-1]).all()
    )
    return points(list(zip(found.starts.tolist(), found.ends.tolist(), strict=True)))


@given(pairs)
def test_union(spans: list[tuple[int, int]]) -> None:
    found = make(spans)
    assert as_points(found) == points(spans)
    assert found.total == len(points(spans))


@given(pairs, pairs)
def test_intersect_and_subtract(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = make(one), make(other)
    assert as_points(intersect(a, b)) == points(one) & points(other)
    assert as_points(subtract(a, b)) == points(one) - points(other)


@given(pairs, st.integers(0, HORIZON), st.integers(0, HORIZON))
def test_clip_and_gaps(spans: list[tuple[int, int]], low: int, high: int) -> None:
    window = set(range(low, high))
    assert as_points(clip(make(spans), low, high)) == points(spans) & window
    assert as_points(gaps(make(spans), low, max(low, high))) == window - points(spans)


@given(pairs, pairs)
def test_overlap(spans: list[tuple[int, int]], queries: list[tuple[int, int]]) -> None:
    covered = make(spans)
    starts = np.array([start for start, _ in queries], dtype=np.int64)
    ends = np.array([end for _, end in queries], dtype=np.int64)
    expected = [len(points(spans) & set(range(start, end))) for start, end in queries]
    assert overlap(covered, starts, ends).tolist() == expected
    before = [len([point for point in points(spans) if point < start]) for start, _ in queries]
    assert covered_before(covered, starts).tolist() == before


@given(pairs, st.integers(1, 3))
def test_depth_time(spans: list[tuple[int, int]], depth: int) -> None:
    starts = np.array([start for start, _ in spans], dtype=np.int64)
    ends = np.array([end for _, end in spans], dtype=np.int64)
    deep = [p for p in range(HORIZON) if sum(start <= p < end for start, end in spans) >= depth]
    assert depth_time(starts, ends, depth) == len(deep)


def test_large_times_stay_exact() -> None:
    base = 1_790_857_026_000_000_000
    found = make([(base, base + 7), (base + 7, base + 9), (base + 11, base + 12)])
    assert found.total == 10 and len(found) == 2
