"""Counting tokens of batches whose truth is written beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")

from autotune.probe import batches  # noqa: E402


@pytest.fixture(autouse=True)
def fresh() -> None:
    batches._tail_ids.clear()


def rows(lengths: list[int], pad: int = 0, left: bool = False) -> torch.Tensor:
    """Rows of ids 5, 6, 7 ... padded to the longest."""
    longest = max(lengths)
    ids = torch.full((len(lengths), longest), pad)
    for i, n in enumerate(lengths):
        place = slice(longest - n, longest) if left else slice(0, n)
        ids[i, place] = torch.arange(5, 5 + n)
    return ids


@pytest.mark.parametrize("left", [False, True])
def test_mask_gives_real_tokens_lengths_and_side(left: bool) -> None:
    ids = rows([3, 7, 5], left=left)
    batch = {
        "input_ids": ids,
        "attention_mask": (ids != 0).long(),
        "labels": torch.where(ids == 0, -100, ids),
    }
    seen = batches.describe(batch, torch)
    assert seen is not None
    assert (seen.examples, seen.tokens, seen.real, seen.supervised) == (3, 21, 15, 15)
    assert seen.lengths == [3, 7, 5] and seen.padding_side == ("left" if left else "right")
    assert seen.masked and seen.mask_all_ones is False and seen.text
    quick = batches.describe(batch, torch, lengths=False, side=False)
    assert quick is not None and quick.padding_side is None
    assert (quick.tokens, quick.real, quick.supervised, quick.lengths) == (21, 15, 15, [3, 7, 5])


def test_configured_pad_id_without_a_mask() -> None:
    seen = batches.describe({"input_ids": rows([2, 6], pad=1)}, torch, pad_id=1)
    assert seen is not None and seen.real == 8 and seen.supervised is None


def test_pad_id_that_also_ends_texts_keeps_one() -> None:
    # the first 2 of each tail is the end of the text, the rest is padding
    ids = torch.tensor([[5, 6, 2, 2, 2], [5, 6, 7, 8, 2]])
    seen = batches.describe({"input_ids": ids}, torch, 2, True)
    assert seen is not None and seen.real == 8


def test_padding_is_learned_only_from_batches_that_agree() -> None:
    padded = rows([3, 8, 5, 6])
    results = [batches.describe(padded, torch) for _ in range(5)]
    assert [seen.real if seen else None for seen in results] == [None, None, None, 22, 22]


def test_full_rows_never_look_padded() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        ids = torch.randint(0, 40, (8, 16), generator=generator)
        ids[0, -2:] = 7  # one row that ends in a repeated id, as text may
        seen = batches.describe((ids, ids), torch)
        assert seen is not None and seen.real is None and seen.supervised == 128


def test_packed_rows_by_position_ids_and_boundaries() -> None:
    positions = torch.cat([torch.arange(4), torch.arange(6), torch.arange(2)])[None]
    batch = {"input_ids": torch.ones(1, 12).long(), "position_ids": positions, "max_length_q": 6}
    batch["cu_seq_lens_q"] = torch.tensor([0, 4, 10, 12])
    seen = batches.describe(batch, torch)
    assert seen is not None and seen.restarts is True
    assert (seen.examples, seen.real, seen.lengths) == (3, 12, [4, 6, 2])
    assert seen.boundaries == ("cu_seq_lens_q", "max_length_q")
    two = batches.describe(
        {"input_ids": torch.ones(2, 12).long(), "position_ids": positions.repeat(2, 1)}, torch
    )
    assert two is not None and two.examples == 6 and two.lengths == [4, 6, 2, 4, 6, 2]
    quick = batches.describe(batch, torch, lengths=False)
    assert quick is not None and (quick.examples, quick.real, quick.lengths) == (3, 12, [])


def test_what_fills_a_packed_row_up_is_padding() -> None:
    """Rows of one length: 4 and 5 tokens and 3 of filling, 6 tokens and 6 of filling, 12 tokens."""
    ids = torch.arange(1, 37).view(3, 12)
    labels = ids.clone()
    ids[0, 9:], labels[0, 9:] = 0, -100
    ids[1, 6:], labels[1, 6:] = 0, -100
    labels[:, 0] = labels[0, 4] = labels[2, 11] = -100
    counted, zeros = torch.arange, torch.zeros
    own_example = [[*counted(4), *counted(5), *counted(3)], [*counted(6), *counted(6)], [*counted(12)]]
    at_zero = [[*counted(4), *counted(5), *zeros(3)], [*counted(6), *zeros(6)], [*counted(12)]]
    counts_on = [[*counted(4), *counted(8)], [*counted(12)], [*counted(12)]]
    for positions in (own_example, at_zero, counts_on):
        batch = {"input_ids": ids, "labels": labels, "position_ids": torch.tensor(positions).long()}
        seen = batches.describe(batch, torch)
        assert seen is not None and seen.tokens == 36
        assert (seen.examples, seen.real, seen.lengths) == (4, 27, [4, 5, 6, 12])
        quick = batches.describe(batch, torch, lengths=False)
        assert quick is not None and (quick.examples, quick.real, quick.lengths) == (4, 27, [])


def test_position_ids_of_another_form() -> None:
    ids, row = torch.arange(1, 25).view(2, 12), torch.cat([torch.arange(4), torch.arange(8)])
    image = torch.tensor(
        [0, 1, 2, 2, 2, 2, 3, 4, 0, 1, 2, 3]
    )  # four patches of one image, then a second text
    three = torch.stack([torch.stack([image, torch.arange(12)])] * 3)
    shared = batches.describe({"input_ids": ids, "position_ids": row[None]}, torch)
    assert shared is not None and (shared.examples, shared.real, shared.lengths) == (4, 24, [4, 8, 4, 8])
    planes = batches.describe({"input_ids": ids, "position_ids": three}, torch)
    assert planes is not None and (planes.examples, planes.real, planes.lengths) == (3, 24, [8, 4, 12])
    for other in (row, row[None, :11], row.repeat(3, 1), row.repeat(1, 3, 1, 1), torch.zeros(0, 2, 12)):
        seen = batches.describe({"input_ids": ids, "position_ids": other}, torch)
        assert seen is not None and (seen.examples, seen.real, seen.restarts) == (2, None, None)
    left = torch.tensor([[1, 1, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8], list(range(12))])
    mask = torch.ones(2, 12).long()
    mask[0, :3] = 0
    padded = batches.describe({"input_ids": ids, "position_ids": left, "attention_mask": mask}, torch)
    assert padded is not None and padded.restarts is False and padded.real == 21


RAGGED = [torch.arange(3), torch.arange(5)]


@pytest.mark.parametrize("name", ["input_ids", "position_ids", "labels", "attention_mask", "pixels"])
@pytest.mark.parametrize(
    "odd",
    [
        torch.nested.nested_tensor(RAGGED),
        torch.nested.nested_tensor(RAGGED, layout=torch.jagged),
        torch.ones(2, 6).long().to_sparse(),
        torch.ones(2, 6, device="meta").long(),
        torch.ones(2, 0).long(),
        torch.ones(0, 6).long(),
        torch.rand(2, 6),
    ],
    ids=["nested", "jagged", "sparse", "on a device", "without tokens", "without rows", "fractions"],
)
def test_what_cannot_be_read_is_unknown(name: str, odd: torch.Tensor) -> None:
    whole = {"input_ids": torch.arange(12).view(2, 6), "position_ids": torch.arange(6).repeat(2, 1)}
    for batch in (whole | {name: odd}, {name: odd}, [odd], (whole["input_ids"], odd)):
        seen = batches.describe(batch, torch)
        assert seen is not None and 0 <= (seen.real or 0) <= (seen.tokens or 0)
        assert batches.largest(batch, torch) >= 0 and isinstance(batches.digest(batch, torch), str)
        assert sum(seen.lengths) == (seen.real or 0)


def test_a_packed_row_of_one_example_has_no_padding() -> None:
    positions = torch.arange(12)[None]
    batch = {"input_ids": torch.ones(1, 12).long(), "position_ids": positions}
    edges = {"cu_seq_lens_q": torch.tensor([0, 12]), "max_length_q": 12}
    seen = batches.describe(batch | edges, torch)
    assert seen is not None and seen.restarts is False
    assert (seen.examples, seen.real, seen.lengths) == (1, 12, [12])
    alone = batches.describe(batch, torch)  # nothing says that no padding is in it
    assert alone is not None and alone.real is None


def test_forms_of_batches() -> None:
    class Pair(NamedTuple):
        x: torch.Tensor
        y: torch.Tensor

    class Holder:
        def __init__(self) -> None:
            self.input_ids = rows([4, 4])

    ids = rows([4, 4])
    for batch in (
        ids,
        (ids,),
        [ids, ids],
        Pair(ids, ids),
        {"tokens": ids},
        Holder(),
        ({"input_ids": ids}, 3),
    ):
        seen = batches.describe(batch, torch)
        assert seen is not None and seen.tokens == 8 and seen.shape == (2, 4), type(batch)
    image = batches.describe((torch.zeros(6, 3, 8, 8), torch.zeros(6).long()), torch)
    assert image is not None and not image.text
    assert (image.examples, image.tokens, image.shape) == (6, None, (6, 3, 8, 8))
    assert batches.describe("nothing", torch) is None and batches.describe({}, torch) is None


def text(lengths: list[int]) -> dict[str, torch.Tensor]:
    ids = rows(lengths)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.where(ids == 0, -100, ids)}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda one: {"text": one, "meta": {"id": torch.arange(3)}},
        lambda one: ([one], torch.arange(3)),
        lambda one: {f"prompt_{name}": value for name, value in one.items()},
        lambda one: ({"x": one}, ["a", "b", "c"]),
    ],
    ids=["mapping inside", "list of mappings", "names with a prefix", "two deep"],
)
def test_a_text_further_inside(wrap: Callable[[dict[str, torch.Tensor]], object]) -> None:
    seen = batches.describe(wrap(text([3, 7, 5])), torch)
    assert seen is not None
    assert (seen.examples, seen.tokens, seen.real, seen.supervised) == (3, 21, 15, 15)
    assert seen.shape == (3, 7) and seen.lengths == [3, 7, 5] and seen.padding_side == "right"


@pytest.mark.parametrize("kind", ["pair", "nested", "list"])
def test_several_texts_are_added_up(kind: str) -> None:
    first, second = text([3, 7, 5]), text([2, 2, 4])
    if kind == "pair":
        batch: object = {
            **{f"chosen_{name}": value for name, value in first.items()},
            **{f"rejected_{name}": value for name, value in second.items()},
        }
    else:
        batch = {"query": first, "passage": second} if kind == "nested" else ([first, second], torch.ones(3))
    seen = batches.describe(batch, torch)
    assert seen is not None
    assert (seen.examples, seen.tokens, seen.real, seen.supervised) == (6, 33, 23, 23)
    assert seen.shape == (3, 7) and seen.lengths == [3, 7, 5, 2, 2, 4] and seen.masked
    if kind == "pair":
        del batch["rejected_attention_mask"]  # type: ignore[attr-defined]
        half = batches.describe(batch, torch)
        assert half is not None and half.real is None and half.tokens == 33


def test_encoder_and_decoder_stay_one_text() -> None:
    batch = {**text([3, 7, 5]), "decoder_input_ids": rows([2, 2, 2])}
    seen = batches.describe(batch, torch)
    assert seen is not None and (seen.examples, seen.tokens, seen.real) == (3, 21, 15)
