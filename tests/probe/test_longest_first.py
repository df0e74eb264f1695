"""A launch in which the longest examples come first."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from probe_parts import part

from autotune.observe.launch import launch
from autotune.observe.spec import LaunchSpec

JOB = Path(__file__).parent.parent / "verify" / "jobs" / "half.py"


@pytest.mark.job
def test_the_longest_examples_come_first(tmp_path: Path) -> None:
    seen = launch(
        LaunchSpec(
            command=(sys.executable, str(JOB), "--half", "none", "--steps", "12"),
            cwd=JOB.parent,
            folder=tmp_path / "launch",
            mode="timing",
            steps=3,
            warmup_steps=1,
            longest_first=True,
            echo="none",
        )
    )
    (rank,) = seen.ranks
    assert rank.hook_faults == []
    assert rank.counters["longest_first.examples"] == 320
    longest = int(rank.counters["longest_first.tokens"])
    assert longest >= 38
    shapes = [tuple(step.shapes[0]) for step in rank.steps[:3]]
    assert shapes == [(8, longest)] * 3
    assert rank.steps[0].real_tokens is not None and rank.steps[0].real_tokens > 8 * (longest - 2)


LENGTHS = [3, 9, 2, 8, 1, 1, 1, 1, 1, 5]
DATA = [[7] * length for length in LENGTHS]


def pad(rows: list[list[int]]) -> dict[str, torch.Tensor]:
    longest = max(len(row) for row in rows)
    return {"input_ids": torch.tensor([row + [0] * (longest - len(row)) for row in rows])}


def pack(rows: list[list[int]]) -> list[torch.Tensor]:
    return [torch.tensor([[token for row in rows for token in row]])]


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = part("longest_first")
    monkeypatch.setattr(module.core, "settings", SimpleNamespace(longest_times=2), raising=False)
    monkeypatch.setattr(module.core, "emit", lambda *_: None)
    monkeypatch.setattr(module, "_known", {})
    return module


@pytest.mark.parametrize(
    ("batches", "collate", "first"),
    [
        ([[0, 2], [1, 4], [3, 5], [6]], pad, [1, 3]),  # two examples a batch: the two longest may meet
        ([[0], [1, 2], [3, 4], [5, 6, 7, 8, 9]], pad, [5, 6, 7, 8, 9]),  # 5 rows of 5
        ([[0], [1, 2], [3, 4], [5, 6, 7, 8, 9]], pack, [1, 2]),  # 11 tokens, more than 9
        ([[1, 3], [2, 0, 4]], pack, [1, 3]),  # a budget of tokens never makes three of the longest
        ([4, 1, 0], pad, 1),  # no batches
    ],
)
def test_the_batch_put_first_is_one_the_sampler_can_make(
    probe: ModuleType, batches: list, collate: object, first: object
) -> None:
    assert list(probe._LongestFirst(batches, DATA, collate)) == [first, first, *batches]


def test_a_sampler_without_end_goes_on_after_the_longest_batch(
    probe: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_MOST_EXAMPLES", 100)
    endless = itertools.cycle([[0, 2], [1], [0, 3]])
    drawn = list(itertools.islice(probe._LongestFirst(endless, DATA, pack), 302))
    assert drawn == [[0, 3], [0, 3], *[[0, 2], [1], [0, 3]] * 100]


class Row(NamedTuple):
    pieces: list[tuple[int, int]]
    tokens: int
    items: None = None


class Rows(list):
    """A data set that is asked for planned rows."""

    def __getitems__(self, row: Row) -> list[list[int]]:
        return [self[number] for number, _ in row.pieces]


def test_a_planned_row_is_taken_as_it_is(probe: ModuleType) -> None:
    rows = [Row([(0, 3), (2, 2)], 12), Row([(1, 9), (4, 1)], 12), Row([(3, 8)], 12)]
    assert list(probe._LongestFirst(rows, Rows(DATA), pack)) == [rows[1], rows[1], *rows]
