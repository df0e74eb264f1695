"""Rows filled up to a budget: every example once, about equally full, as many rows on every rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from shim_modules import load_shim
from test_packed_shims import gradients, pad, tiny
from test_token_rows import firsts, numbered
from torch.utils.data import BatchSampler, DataLoader, Sampler, SequentialSampler

BUDGET = 128


class Budget(Sampler[list[int]]):
    """As many examples as fit after padding, in order; every rank its share of the batches."""

    def __init__(self, data: list[torch.Tensor], budget: int = BUDGET, rank: int = 0, ranks: int = 1) -> None:
        batches: list[list[int]] = [[]]
        for number, row in enumerate(data):
            longest = max([len(row), *(len(data[n]) for n in batches[-1])])
            if batches[-1] and longest * (len(batches[-1]) + 1) > budget:
                batches.append([])
            batches[-1].append(number)
        self.batches = batches[rank : len(batches) // ranks * ranks : ranks]
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)


@pytest.fixture
def filled() -> Any:
    for name in ("packed_attention", "packed_batches", "example_lengths", "token_rows"):
        load_shim(name)

    def load(**arguments: object) -> Any:
        return load_shim("filled_rows", **({"row_tokens": BUDGET, "rows_per_batch": 0.7} | arguments))

    return load


def loader_of(data: list[torch.Tensor], **options: Any) -> DataLoader[Any]:
    options.setdefault("batch_sampler", Budget(data))
    return DataLoader(data, collate_fn=pad, **options)


def test_every_example_is_in_one_row_and_rows_are_about_equally_full(filled: Any) -> None:
    data = numbered()[1:]  # number 0 would look like filling
    before = loader_of(data)
    batches = len(before)
    loader = filled(group=20).fill(loader_of(data))
    rows = list(loader)
    assert len(rows) == len(loader) < batches
    assert sorted(n for row in rows for n in firsts(row)) == list(range(1, 100))
    fullness = [int((row["labels"] != -100).sum()) + len(firsts(row)) for row in rows]
    whole = fullness[:-1]
    assert max(whole) / min(whole) < 1.3
    assert {row["input_ids"].shape[1] for row in rows if int(row["cu_seq_lens_q"][-1]) <= BUDGET} == {BUDGET}
    assert all(row["input_ids"].shape[1] % 128 == 0 for row in rows)
    assert "num_items_in_batch" not in rows[0], "the loss of a step is the mean over its labels, as before"


def test_examples_keep_the_jobs_order_within_a_group(filled: Any) -> None:
    data = numbered()
    sampler = Budget(data)
    loader = filled(group=5).fill(loader_of(data, batch_sampler=sampler))
    groups = [[n for batch in sampler.batches[i : i + 5] for n in batch] for i in range(0, len(sampler), 5)]
    rows = iter(loader)
    for group in groups:
        count = -(-7 * min(5, len(sampler.batches) - 5 * groups.index(group)) // 10)
        taken = [firsts(next(rows)) for _ in range(count)]
        assert sorted(n for row in taken for n in row if n) == [n for n in group if n]
        assert all(row == sorted(row) for row in taken)
    assert next(rows, None) is None


@pytest.mark.parametrize("share", [0.55, 0.7, 1.0])
def test_ranks_with_as_many_batches_have_as_many_rows(filled: Any, share: float) -> None:
    data = numbered()
    loaders = [
        filled(rows_per_batch=share, group=8).fill(
            loader_of(data, batch_sampler=Budget(data, rank=rank, ranks=2))
        )
        for rank in range(2)
    ]
    first, second = ([firsts(row) for row in loader] for loader in loaders)
    assert len(first) == len(second) == len(loaders[0]) == len(loaders[1])
    assert not {n for row in first for n in row if n} & {n for row in second for n in row if n}


def test_a_row_trains_on_its_examples_alone(filled: Any) -> None:
    batches = load_shim("packed_batches")
    data = numbered()[1:20]
    model = batches.attend_per_example(tiny("llama"))
    row = next(iter(filled(group=4).fill(loader_of(data))))
    found = gradients(model, model(**row).loss)
    plain = tiny("llama")
    parts = [pad([data[n - 1]]) for n in firsts(row)]
    count = sum(int((part["labels"][:, 1:] != -100).sum()) for part in parts)
    total = sum(plain(**part, num_items_in_batch=torch.tensor(count)).loss for part in parts)
    assert torch.allclose(found, gradients(plain, total), atol=1e-6)


def test_workers_epochs_and_the_samplers_own_methods_stay(filled: Any) -> None:
    data = numbered()
    loader = filled(group=6).fill(loader_of(data, num_workers=1))
    loader.batch_sampler.set_epoch(3)
    assert loader.batch_sampler.batches.epoch == loader.batch_sampler.epoch == 3
    once = [firsts(row) for row in loader]
    assert once == [firsts(row) for row in loader]
    assert once == [firsts(row) for row in filled(group=6).fill(loader_of(data))]


def test_more_rows_than_examples_leave_none_empty(filled: Any) -> None:
    data = numbered()[1:3]
    sampler = [[0], [1]]
    rows = list(filled(rows_per_batch=1.0).fill(DataLoader(data, batch_sampler=sampler, collate_fn=pad)))
    assert sorted(n for row in rows for n in firsts(row)) == [1, 2]


def test_what_cannot_be_filled_says_so(filled: Any) -> None:
    data = numbered()
    plain = BatchSampler(SequentialSampler(data), 4, False)
    with pytest.raises(ValueError, match="not cut to a budget of tokens"):
        filled().fill(DataLoader(data, batch_sampler=plain, collate_fn=pad))
    with pytest.raises(ValueError, match="not cut to a budget"):
        filled().fill(DataLoader(data, batch_size=None))
    shim = filled()
    with pytest.raises(ValueError, match="rows already, planned by FilledRows"):
        shim.fill(shim.fill(loader_of(data)))
    with pytest.raises(ValueError, match=r"ROWS_PER_BATCH is 1\.4"):
        filled(rows_per_batch=1.4).fill(loader_of(data))
