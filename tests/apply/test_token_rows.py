"""Rows with a budget of tokens: each example once, one shape, equal work on ranks, the loss of all labels."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from shim_modules import load_shim
from test_packed_shims import examples, gradients, pad, tiny
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

SIZES = tuple(3 + (7 * n * n) % 37 for n in range(100))


@pytest.fixture
def shims() -> Any:
    load_shim("packed_attention")
    load_shim("packed_batches")
    load_shim("example_lengths")

    def load(name: str = "token_rows", **arguments: object) -> Any:
        return load_shim(name, **arguments)

    return load


def numbered(sizes: tuple[int, ...] = SIZES) -> list[torch.Tensor]:
    """Examples whose first token is their number, so that a row shows which ones it holds."""
    rows = examples(sizes)
    for n, row in enumerate(rows):
        row[0] = n
    return rows


def loader_of(data: Any, batch_size: int = 6, seed: int = 3, **options: Any) -> DataLoader[Any]:
    if "sampler" not in options:
        options |= {"shuffle": True, "generator": torch.Generator().manual_seed(seed)}
    return DataLoader(data, batch_size=batch_size, collate_fn=pad, **options)


def firsts(batch: dict[str, torch.Tensor]) -> list[int]:
    """Numbers of the examples in a packed row; the filling at the end is none."""
    ends, ids = batch["cu_seq_lens_q"].tolist(), batch["input_ids"][0]
    filled = bool((ids[ends[-2] :] == 0).all()) and ends[-1] - ends[-2] >= 1 and not ids[ends[-2]]
    starts = ends[:-2] if filled and bool((batch["labels"][0, ends[-2] :] == -100).all()) else ends[:-1]
    return [int(ids[a]) for a in starts]


def test_every_example_is_in_one_row_and_all_rows_have_one_shape(shims: Any) -> None:
    rows = shims(row_tokens=128, window=40)
    data = numbered()[1:]  # number 0 would look like filling
    loader = rows.pack(loader_of(data, 6))
    batches = list(loader)
    seen = [n for b in batches for n in firsts(b)]
    assert sorted(seen) == list(range(1, 100))
    assert {b["input_ids"].shape for b in batches} == {(1, 128)}
    total = sum(len(e) for e in data)
    assert len(batches) <= -(-total // 128) + 1
    assert all(
        int(b["cu_seq_lens_q"][-1]) == 128 and int(b["cu_seq_lens_q"].diff().min()) > 0 for b in batches
    )
    assert all(torch.is_tensor(v) for v in batches[0].values()), "loops move every value to the device"


def test_the_plan_follows_the_jobs_seed_and_can_be_gone_on_with(shims: Any) -> None:
    rows = shims(row_tokens=128, window=40)
    data = numbered()
    one, two = (rows.pack(loader_of(data)) for _ in range(2))
    first = [firsts(b) for b in one]
    assert first == [firsts(b) for b in two]
    assert first != [firsts(b) for b in one], "the next epoch has an order of its own"
    again = rows.pack(loader_of(data))
    again.batch_sampler.skip(5)
    assert [firsts(b) for b in again] == first[5:]


@pytest.mark.parametrize("window", [30, 4096])
def test_the_length_of_an_epoch_is_what_len_says(shims: Any, window: int) -> None:
    rows = shims(row_tokens=128, window=window)
    loader = rows.pack(loader_of(numbered()))
    expected = len(loader)
    assert [len(list(loader)) for _ in range(3)] == [expected] * 3
    assert expected == len(loader)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_the_plan_and_get_like_work(shims: Any, ranks: int) -> None:
    rows = shims(row_tokens=128, window=50)
    data = numbered()
    loaders = []
    for rank in range(ranks):
        sampler: Any = DistributedSampler(data, ranks, rank, shuffle=True, seed=5)
        loaders.append((sampler, rows.pack(loader_of(data, sampler=sampler))))
    for epoch in range(2):
        for sampler, _ in loaders:
            sampler.set_epoch(epoch)
        given = [list(loader) for _, loader in loaders]
        assert {len(g) for g in given} == {len(loaders[0][1])}
        seen = sorted(n for g in given for b in g for n in firsts(b))
        assert set(seen) >= set(range(1, 100)) and len(seen) <= 100 + ranks
        costs = torch.tensor([[float(b["cu_seq_lens_q"].diff().square().sum()) for b in g] for g in given])
        skew = (costs.max(0).values / costs.mean(0)).median()
        assert skew < 1.35, "ranks of a step have like costs"
        items = [[float(b["num_items_in_batch"]) for b in g] for g in given]
        assert all(column == items[0] for column in items)


def test_a_row_is_chosen_to_hold_as_many_examples_as_a_batch_did(shims: Any, capsys: Any) -> None:
    loader = shims(multiple_of=8).pack(loader_of(numbered(), 10))
    batches = list(loader)
    assert len(batches) == pytest.approx(10, abs=1)
    assert "rows of " in capsys.readouterr().err
    assert len({b["input_ids"].shape for b in batches}) == 1


@pytest.mark.parametrize("choice", ["alone", "refuse", "split"])
def test_long_examples(shims: Any, choice: str) -> None:
    rows = shims(row_tokens=64, long_examples=choice, multiple_of=16)
    data = numbered((20, 150, 30, 25))
    loader = rows.pack(loader_of(data, 2, num_workers=0))
    if choice == "refuse":
        with pytest.raises(ValueError, match="example 1 has 150 tokens, a row 64"):
            list(loader)
        return
    batches = list(loader)
    targets = sorted(x for b in batches for x in b["labels"][0][b["labels"][0] != -100].tolist())
    plain = [pad([row])["labels"][0, 1:] for row in data]
    assert targets == sorted(x for p in plain for x in p[p != -100].tolist()), "no label is lost or doubled"
    widths = {b["input_ids"].shape[1] for b in batches}
    assert widths == ({64, 160} if choice == "alone" else {64})


def test_the_loss_is_that_of_all_labels_of_a_step(shims: Any) -> None:
    batches = load_shim("packed_batches")
    rows = shims(row_tokens=96, accumulation=2)
    data = numbered(SIZES[:12])
    model = tiny("llama")
    loader = rows.pack(loader_of(data, 4))
    batches.attend_per_example(model)
    step = [b for b, _ in zip(loader, range(2), strict=False)]
    found = gradients(model, sum(model(**b).loss / 2 for b in step))
    plain = copy.deepcopy(tiny("llama"))
    numbers = [n for b in step for n in firsts(b)]
    parts = [pad([data[n]]) for n in numbers]
    count = sum(int((p["labels"][:, 1:] != -100).sum()) for p in parts)
    total = sum(plain(**p, num_items_in_batch=torch.tensor(count)).loss for p in parts)
    assert torch.allclose(found, gradients(plain, total), atol=1e-6)


@pytest.mark.parametrize("window", [30, 4096])
def test_labels_are_counted_over_the_steps_that_the_loop_makes(shims: Any, window: int) -> None:
    rows = shims(row_tokens=96, window=window, accumulation=3)
    batches = list(rows.pack(loader_of(numbered(), 4)))
    for i in range(0, len(batches) // 3 * 3, 3):
        step = batches[i : i + 3]
        labels = sum(int((b["labels"] != -100).sum()) for b in step)
        assert [float(b["num_items_in_batch"]) for b in step] == pytest.approx([labels / 3] * 3)


def test_workers_and_attributes_of_the_loader_stay(shims: Any) -> None:
    rows = shims(row_tokens=128)
    data = numbered()
    loader = loader_of(data, 6, num_workers=1)
    packed = rows.pack(loader)
    assert (
        packed is loader and packed.batch_size == 6 and packed.num_workers == 1 and len(packed.dataset) == 100
    )
    assert next(iter(packed))["input_ids"].shape == (1, 128)
    same = rows.pack(loader_of(data, 6))
    assert [firsts(b) for b in same] != [] and len(list(same)) == len(list(packed))


def test_a_schedule_of_the_batches_as_they_were_is_stretched(shims: Any) -> None:
    from transformers import get_linear_schedule_with_warmup

    rows = shims(row_tokens=256)
    plain, loader = loader_of(numbered(), 6), rows.pack(loader_of(numbered(), 6))
    before, now = len(plain), len(loader)
    assert now < before

    def rates(steps: int, stretched: bool) -> list[float]:
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        schedule = get_linear_schedule_with_warmup(optimizer, before // 2, before)
        schedule = rows.stretch(schedule, loader) if stretched else schedule
        found = []
        for _ in range(steps):
            optimizer.step()
            schedule.step()
            found.append(float(schedule.get_last_lr()[0]))
        return found

    whole, fewer = rates(before, False), rates(now, True)
    assert whole[-1] == pytest.approx(0) and fewer[-1] == pytest.approx(0)
    assert rates(now, False)[-1] > 0  # not stretched, it would end early
    assert max(fewer) == pytest.approx(max(whole), abs=0.1)
    wave = torch.optim.lr_scheduler.CosineAnnealingLR(
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 1.0), 9
    )
    with pytest.raises(ValueError, match="CosineAnnealingLR cannot be stretched"):
        rows.stretch(wave, loader)


def test_what_cannot_be_planned_says_so(shims: Any, monkeypatch: Any) -> None:
    rows = shims(row_tokens=128)

    class Stream(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return iter(numbered())

    class Own(torch.utils.data.BatchSampler):
        pass

    own = Own(torch.utils.data.SequentialSampler(numbered()), 4, False)
    for change in (rows.pack, shims("length_groups").group):
        with pytest.raises(ValueError, match="planned by Own already"):
            change(DataLoader(numbered(), batch_sampler=own, collate_fn=pad))
    twice = rows.pack(loader_of(numbered()))
    with pytest.raises(ValueError, match="planned by TokenRows already"):
        rows.pack(twice)
    with pytest.raises(ValueError, match="without numbers"):
        rows.pack(DataLoader(Stream(), batch_size=2, collate_fn=pad))
    with pytest.raises(ValueError, match="does not batch"):
        rows.pack(DataLoader(numbered(), batch_size=None))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match="RandomSampler does not say"):
        rows.pack(loader_of(numbered()))


def test_a_data_set_of_changing_lengths_is_noticed(shims: Any) -> None:
    class Growing(torch.utils.data.Dataset):  # type: ignore[misc]
        reads = 0

        def __len__(self) -> int:
            return 8

        def __getitem__(self, n: int) -> torch.Tensor:
            self.reads += 1
            return torch.arange(1, 20 + self.reads)

    with pytest.raises(ValueError, match="longer than when they were measured"):
        list(shims(row_tokens=64).pack(loader_of(Growing(), 2)))


def test_data_sets_that_read_many_at_once_are_asked_so(shims: Any) -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"ids": [row.tolist() for row in numbered()]})

    def collate(found: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        return pad([torch.tensor(row["ids"]) for row in found])

    plain = shims(row_tokens=128)
    expected = [firsts(b) for b in plain.pack(loader_of(numbered()))]
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(table, batch_size=6, shuffle=True, generator=generator, collate_fn=collate)
    assert [firsts(b) for b in plain.pack(loader)] == expected


@pytest.mark.parametrize("ranks", [1, 2])
def test_groups_of_like_length_leave_less_padding_and_lose_nothing(shims: Any, ranks: int) -> None:
    groups = shims("length_groups", chunk=8)
    data = numbered()

    def arms(grouped: bool) -> list[list[dict[str, torch.Tensor]]]:
        out = []
        for rank in range(ranks):
            sampler = DistributedSampler(data, ranks, rank, seed=5) if ranks > 1 else None
            loader = loader_of(data, 6, **({"sampler": sampler} if sampler else {}))
            out.append(list(groups.group(loader) if grouped else loader))
            if grouped:
                assert len(loader) == len(out[-1])
        return out

    before, after = arms(False), arms(True)
    assert [len(b) for b in before] == [len(b) for b in after]
    first = [
        sorted(int(n) for b in arm for batch in b for n in batch["input_ids"][:, 0])
        for arm in (before, after)
    ]
    assert first[0] == first[1]
    padding = [
        1
        - sum(int(b["attention_mask"].sum()) for a in arm for b in a)
        / sum(b["attention_mask"].numel() for a in arm for b in a)
        for arm in (before, after)
    ]
    assert padding[1] < padding[0] / 3
    again = arms(True)
    assert [[b["input_ids"].tolist() for b in a] for a in again] == [
        [b["input_ids"].tolist() for b in a] for a in after
    ]


def test_groups_need_lengths(shims: Any) -> None:
    groups = shims("length_groups")
    with pytest.raises(ValueError, match="no token ids"):
        list(groups.group(DataLoader([1.0, 2.0], batch_size=1)))
    loader = groups.group(loader_of(numbered(), 6))
    loader.batch_sampler.skip(3)
    assert len(list(loader)) == len(loader) - 3
