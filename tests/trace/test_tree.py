"""Nesting of host events against a plain stack."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autotune.trace.columns import Host, HostTable
from autotune.trace.tree import build_tree, sort_host


def table(rows: list[tuple[int, int, int, Host]]) -> HostTable:
    """Rows of (thread, start, duration, kind)."""
    count = len(rows)
    return HostTable(
        ts=np.array([row[1] for row in rows], dtype=np.int64),
        dur=np.array([row[2] for row in rows], dtype=np.int64),
        name=np.arange(count, dtype=np.int32),
        kind=np.array([int(row[3]) for row in rows], dtype=np.int8),
        thread=np.array([row[0] for row in rows], dtype=np.int32),
        link=np.full(count, -1, dtype=np.int64),
        sequence=np.full(count, -1, dtype=np.int32),
        forward=np.full(count, -1, dtype=np.int8),
        shape=np.full(count, -1, dtype=np.int32),
    )


def built(rows: list[tuple[int, int, int, Host]]) -> tuple[HostTable, dict[int, int], np.ndarray]:  # type: ignore[type-arg]
    """Sorted table, parent name by name (-1 for roots) and self times by name."""
    host = table(rows)
    sort_host(host)
    tree = build_tree(host, np.zeros(len(host), dtype=bool))
    parents = {
        int(host.name[row]): int(host.name[up]) if up >= 0 else -1
        for row, up in enumerate(tree.parent.tolist())
    }
    own = np.zeros(len(host), dtype=np.int64)
    own[host.name] = tree.self_time(host.ts)
    return host, parents, own


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int, int, Host]]:
    """Well nested events on two threads, in any order."""
    rows: list[tuple[int, int, int, Host]] = []

    def fill(thread: int, low: int, high: int, depth: int) -> None:
        at = low
        while at < high and len(rows) < 40:
            start = draw(st.integers(at, high - 1))
            end = draw(st.integers(start + 1, high))
            rows.append((thread, start, end - start, Host.OP))
            if depth < 4 and draw(st.booleans()):
                fill(thread, start, end, depth + 1)
            at = end
            if draw(st.booleans()):
                break

    fill(0, 0, 80, 0)
    fill(3, 5, 60, 0)
    return draw(st.permutations(rows))


def by_stack(rows: list[tuple[int, int, int, Host]]) -> dict[int, int]:
    """Parents the slow way: the shortest event that contains the row."""
    found = {}
    for index, (thread, start, dur, _) in enumerate(rows):
        around = [
            (other[2], other[1], at)
            for at, other in enumerate(rows)
            if at != index
            and other[0] == thread
            and other[1] <= start
            and other[1] + other[2] >= start + dur
            and (other[1], -other[2]) != (start, -dur)
        ]
        found[index] = min(around)[2] if around else -1
    return found


@given(nested())
def test_parents_of_nested_events(rows: list[tuple[int, int, int, Host]]) -> None:
    spans = [(row[0], row[1], row[2]) for row in rows]
    _, parents, own = built(rows)
    expected = by_stack(rows)
    for index, parent in parents.items():
        if spans.count(spans[index]) == 1 and (parent < 0 or spans.count(spans[parent]) == 1):
            assert parent == expected[index]
    roots = [index for index, parent in parents.items() if parent < 0]
    assert own.sum() == sum(rows[index][2] for index in roots)
    assert (own >= 0).all()


def test_rounding_is_cut_silently_and_disorder_is_counted() -> None:
    rows = [(0, 0, 100_000, Host.OP), (0, 50_000, 51_000, Host.OP), (0, 60_000, 500_000, Host.OP)]
    host = table(rows)
    sort_host(host)
    tree = build_tree(host, np.zeros(3, dtype=bool))
    assert tree.end.tolist() == [100_000, 100_000, 100_000]
    assert tree.cut_rows == 1


def test_enter_frames_of_record_function_do_not_cut_the_range() -> None:
    rows = [
        (0, 0, 10_000, Host.PYTHON),  # __enter__
        (0, 4_000, 5_000, Host.PYTHON),  # the call that opens the range
        (0, 6_000, 500_000, Host.ANNOTATION),
        (0, 100_000, 50_000, Host.OP),
    ]
    host, parents, _ = built(rows)
    tree = build_tree(host, np.zeros(4, dtype=bool))
    assert parents[2] == -1 and parents[3] == 2
    assert tree.end.tolist()[2] == 506_000 and tree.cut_rows == 0


def test_skipped_rows_have_no_children() -> None:
    host = table([(0, 0, 100, Host.ANNOTATION), (0, 10, 20, Host.OP)])
    sort_host(host)
    tree = build_tree(host, np.array([True, False]))
    assert tree.parent.tolist() == [-1, -1]


def test_nearest_and_outermost() -> None:
    rows = [(0, 0, 100, Host.OP), (0, 10, 80, Host.OP), (0, 20, 10, Host.RUNTIME), (1, 0, 5, Host.OP)]
    host = table(rows)
    sort_host(host)
    tree = build_tree(host, np.zeros(4, dtype=bool))
    ops = host.kind == Host.OP
    assert tree.nearest(ops).tolist() == [0, 1, 1, 3]
    assert tree.outermost(ops).tolist() == [0, 0, 0, 3]


def test_empty_table() -> None:
    host = table([])
    sort_host(host)
    assert build_tree(host, np.zeros(0, dtype=bool)).parent.size == 0
