"""A launch in which the longest examples come first."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from probe_parts import part
from torch.utils.data import DataLoader

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
        ([], pad, None),
    ],
)
def test_the_batch_put_first_is_one_the_sampler_can_make(
    probe: ModuleType, batches: list, collate: object, first: object
) -> None:
    expected = [first, first, *batches] if batches else []
    assert list(probe._LongestFirst(batches, DATA, collate)) == expected


def draws(items: object) -> Iterator[object]:
    """As a sampler does; it fails where an item is a fault."""
    for item in items:
        if isinstance(item, Exception):
            raise item
        yield item


PAIRS = [[0, 2], [1, 4], [3, 5], [6, 7]]


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"sampler": [4, 1, 0], "batch_size": None}, DATA[1]),
        ({"sampler": torch.tensor([4, 1, 0]), "batch_size": None}, DATA[1]),
        ({"batch_sampler": [torch.tensor(pair) for pair in PAIRS]}, pad([DATA[1], DATA[3]])),
        ({"batch_sampler": [np.array(pair) for pair in PAIRS]}, pad([DATA[1], DATA[3]])),
        ({"batch_sampler": [list(torch.tensor(pair)) for pair in PAIRS]}, pad([DATA[1], DATA[3]])),
        ({"batch_size": 2, "shuffle": True, "num_workers": 1}, pad([DATA[1], DATA[3]])),
        ({"batch_sampler": [set(pair) for pair in PAIRS]}, None),
        ({"batch_sampler": [iter(pair) for pair in PAIRS]}, None),
        ({"batch_sampler": []}, None),
        ({"batch_sampler": [[], []]}, None),
    ],
    ids=[
        "number",
        "tensor",
        "tensors",
        "arrays",
        "of tensors",
        "worker",
        "sets",
        "iterators",
        "none",
        "empty",
    ],
)
def test_batches_of_any_kind_are_fetched_as_before(
    probe: ModuleType, monkeypatch: pytest.MonkeyPatch, options: dict, first: object
) -> None:
    def collate(rows: list) -> object:
        return rows if "sampler" in options or not rows else pad(rows)

    def loaded() -> list[str]:
        torch.manual_seed(0)
        again = {k: list(map(copy, v)) if k == "batch_sampler" else v for k, v in options.items()}
        return [str(batch) for batch in DataLoader(DATA, collate_fn=collate, **again)]

    told: list[object] = []
    monkeypatch.setattr(probe.core, "emit", lambda *event: told.append(event))
    plain = loaded()
    monkeypatch.setattr(DataLoader, "_index_sampler", DataLoader._index_sampler)
    monkeypatch.setattr(probe.core, "active", True, raising=False)
    probe.install(torch)
    assert loaded() == ([str(first)] * 2 if first is not None else []) + plain
    assert bool(told) == (first is not None), "what was not put first is not told"


@pytest.mark.parametrize("batches", [[[0, 2], [1, 4]], [[0], [1, 2], [3, 4]]])
def test_a_fault_of_the_sampler_comes_where_it_came(probe: ModuleType, batches: list) -> None:
    drawn = iter(probe._LongestFirst(draws([*batches, RuntimeError("no more")]), DATA, pack))
    assert [next(drawn) for _ in range(2 + len(batches))][2:] == batches
    with pytest.raises(RuntimeError, match="no more"):
        next(drawn)


class Slow(list):
    def __getitem__(self, index: int) -> list[int]:
        time.sleep(0.01)
        return super().__getitem__(index)


class Broken(list):
    def __getitem__(self, index: int) -> list[int]:
        if index == 7:
            raise OSError("a damaged shard")
        return super().__getitem__(index)


@pytest.mark.parametrize(("kind", "put_first"), [(Slow, 2), (Broken, 0)])
def test_of_a_data_set_that_did_not_tell_all_lengths_nothing_is_told(
    probe: ModuleType, monkeypatch: pytest.MonkeyPatch, kind: type, put_first: int
) -> None:
    told: list[object] = []
    monkeypatch.setattr(probe.core, "emit", lambda *event: told.append(event))
    monkeypatch.setattr(probe.core, "sink", SimpleNamespace(fault=told.append), raising=False)
    monkeypatch.setattr(probe, "_MOST_S", 0.05)
    drawn = list(probe._LongestFirst([[0, 2], [1, 4]], kind(DATA), pad))
    assert drawn[put_first:] == [[0, 2], [1, 4]]
    assert told == ([] if kind is Slow else ["longest_first.worst"])


@pytest.mark.parametrize(("most", "tokens"), [(len(DATA), 9.0), (len(DATA) - 1, None)])
def test_of_more_examples_than_are_asked_nothing_is_told(
    probe: ModuleType, monkeypatch: pytest.MonkeyPatch, most: int, tokens: float | None
) -> None:
    told: list[tuple[str, dict]] = []
    monkeypatch.setattr(probe.core, "emit", lambda *event: told.append(event))
    monkeypatch.setattr(probe, "_MOST_EXAMPLES", most)
    assert next(iter(probe._LongestFirst([[0, 2], [1, 4]], DATA, pad))) == [1, 3]
    assert [event["values"]["longest_first.tokens"] for _, event in told] == ([tokens] if tokens else [])


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


def test_a_number_in_a_tensor_has_no_length(probe: ModuleType) -> None:
    assert probe._length({"ids": torch.tensor(3), "input": torch.arange(4)}) == 4
    assert probe._length({"ids": torch.tensor(3)}) is None
