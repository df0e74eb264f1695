"""The same examples give the same digests in every layout of a batch, and other examples do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from probe_parts import part

ROWS = [[5, 6, 7, 8], [9, 4, 9], [11, 12, 13, 14, 15, 16]]
PROMPT = 2  # tokens of each row that carry no label


def padded(left: bool = False, pad: int = 0) -> dict[str, Any]:
    width = max(map(len, ROWS))
    ids, labels, mask = [], [], []
    for row in ROWS:
        gap = width - len(row)
        own = [-100] * PROMPT + row[PROMPT:]
        ids.append([pad] * gap + row if left else row + [pad] * gap)
        labels.append([-100] * gap + own if left else own + [-100] * gap)
        mask.append([0] * gap + [1] * len(row) if left else [1] * len(row) + [0] * gap)
    return {
        "input_ids": torch.tensor(ids),
        "labels": torch.tensor(labels),
        "attention_mask": torch.tensor(mask),
    }


def packed(*boundaries: str) -> dict[str, Any]:
    ids = [t for row in ROWS for t in row]
    labels = [label for row in ROWS for label in [-100] * PROMPT + row[PROMPT:]]
    edges = [0]
    for row in ROWS:
        edges.append(edges[-1] + len(row))
    batch = {"input_ids": torch.tensor([ids]), "labels": torch.tensor([labels])}
    extra = {
        "position_ids": torch.tensor([[n for row in ROWS for n in range(len(row))]]),
        "seq_idx": torch.tensor([[n for n, row in enumerate(ROWS) for _ in row]], dtype=torch.int32),
        "cu_seq_lens_q": torch.tensor(edges, dtype=torch.int32),
        "attention_mask": torch.tensor([[n + 1 for n, row in enumerate(ROWS) for _ in row]]),
    }
    return {**batch, **{name: extra[name] for name in boundaries}}


def read(batch: dict[str, Any], loaded: list[dict[str, Any]] | None = None) -> Any:
    return part("parity_examples").read(batch, loaded or [], torch)


def digest(batch: dict[str, Any], loaded: list[dict[str, Any]] | None = None) -> list[int]:
    return sorted(read(batch, loaded).digests())


LAYOUTS = {
    "left padding": padded(left=True),
    "other pad id": padded(pad=15),
    "no mask": {k: v for k, v in padded().items() if k != "attention_mask"},
    "position ids": packed("position_ids"),
    "boundaries": packed("cu_seq_lens_q", "position_ids"),
    "sequence index": packed("seq_idx"),
    "numbered mask": packed("attention_mask"),
    "boundaries in the place of the mask": {
        **packed(),
        "attention_mask": packed("cu_seq_lens_q")["cu_seq_lens_q"],
    },
    "left padding with positions": {
        **padded(left=True),
        "position_ids": (padded(left=True)["attention_mask"].cumsum(1) - 1).masked_fill(
            padded(left=True)["attention_mask"] == 0, 1
        ),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_does_not_matter(name: str) -> None:
    expected = read(padded())
    found = read(LAYOUTS[name])
    assert sorted(found.digests()) == sorted(expected.digests())
    assert found.supervised == expected.supervised == sum(len(row) - PROMPT for row in ROWS)
    assert (found.shift, len(found.spans)) == (1, 3)


def test_micro_batches_add_up() -> None:
    whole = padded()
    parts = [{k: v[n : n + 1] for k, v in whole.items()} for n in range(3)]
    assert sorted(d for p in parts for d in read(p).digests()) == digest(whole)


def test_first_label_of_a_row_is_never_trained_on() -> None:
    """A packer marks it as ignored, a padded batch does not need to."""
    batch = {"input_ids": torch.tensor([[5, 6, 7]]), "labels": torch.tensor([[5, 6, 7]])}
    marked = {"input_ids": torch.tensor([[5, 6, 7]]), "labels": torch.tensor([[-100, 6, 7]])}
    assert digest(batch) == digest(marked) and read(batch).supervised == 2


def test_a_label_across_a_boundary_is_seen() -> None:
    wrong = packed("position_ids")
    right = digest(wrong)
    wrong["labels"] = wrong["labels"].clone()
    wrong["labels"][0, 4] = 9  # first token of the second example: the first example's end predicts it
    assert digest(wrong) != right and read(wrong).supervised == read(packed("position_ids")).supervised + 1


def test_other_examples_have_other_digests() -> None:
    dropped = {k: v[:2] for k, v in padded().items()}
    assert digest(dropped) != digest(padded())
    cut = padded()
    cut["labels"][2, -1] = -100
    assert digest(cut) != digest(padded())
    leaking = packed()  # one long example: other contexts
    assert digest(leaking) != digest(padded())


def test_training_on_padding_is_counted() -> None:
    batch = padded()
    batch["labels"] = batch["input_ids"].clone()
    found = read(batch)
    assert found.supervised == sum(len(row) for row in batch["input_ids"].tolist()) - 3
    assert sorted(found.digests()) != digest(padded())


def test_labels_outside_the_model() -> None:
    """Given to the loss only, in place or shifted by the loop."""
    loaded = padded()
    call = {k: v for k, v in loaded.items() if k != "labels"}
    assert digest(call, [loaded]) == digest(padded())
    shifted = torch.cat([loaded["labels"][:, 1:], torch.full((3, 1), -100)], dim=1)
    inputs = {"x": loaded["input_ids"]}
    found = part("parity_examples").read(inputs, [{"#0": loaded["input_ids"], "#1": shifted}], torch)
    assert found.shift == 0 and found.supervised == 7
    assert read(call, [{"input_ids": loaded["input_ids"] + 1, "labels": loaded["labels"]}]).supervised is None


def test_classification_translation_and_images() -> None:
    whole = padded()
    classes = {**whole, "labels": torch.tensor([1, 0, 1])}
    assert read(classes).supervised == 3 and read(classes).shift is None
    left = {**padded(left=True), "labels": torch.tensor([1, 0, 1])}
    assert digest(classes) == digest(left)
    assert digest({**whole, "labels": torch.tensor([1, 1, 1])}) != digest(classes)
    translation = {**whole, "labels": torch.tensor([[3, 4, -100], [3, -100, -100], [5, 6, 7]])}
    longer = {**whole, "labels": torch.tensor([[3, 4, -100, -100], [3, -100, -100, -100], [5, 6, 7, -100]])}
    assert digest(translation) == digest(longer) and read(longer).supervised == 6
    images = {"pixel_values": torch.arange(24.0).view(2, 3, 4), "labels": torch.tensor([0, 1])}
    assert len(digest(images)) == 2
    split = [{k: v[n : n + 1] for k, v in images.items()} for n in range(2)]
    assert sorted(d for s in split for d in read(s).digests()) == digest(images)


def test_masked_language_model_keeps_the_whole_context() -> None:
    ids = torch.tensor([[5, 1, 7, 8, 9]])
    batch = {"input_ids": ids, "labels": torch.tensor([[-100, 6, -100, -100, -100]])}
    other = {**batch, "input_ids": torch.tensor([[5, 1, 7, 8, 10]])}
    assert read(batch).shift is None and digest(batch) != digest(other)
