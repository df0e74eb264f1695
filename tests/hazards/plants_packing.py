"""Plants in packing and padding: X01-X03, X05-X10."""

from __future__ import annotations

import torch
from job import PAD, TinyLM, pack
from registry import plant
from torch import nn
from torch.nn import functional as F


@plant("X01-bug")
def boundaries_do_not_reach_the_recurrence(parts):
    def collate(batch):
        packed = pack(batch)
        del packed["cu_seq_lens_q"], packed["cu_seq_lens_k"]
        return packed

    parts.collate = collate


@plant("X01-twin")
def boundaries_reach_the_recurrence(parts):
    parts.collate = pack


@plant("X02-bug")
def all_ones_mask_lets_examples_attend_to_each_other(parts):
    parts.collate = lambda batch: {**(p := pack(batch)), "attention_mask": torch.ones_like(p["input_ids"])}


@plant("X02-twin")
def no_mask(parts):
    parts.collate = lambda batch: dict(pack(batch))


@plant("X03-bug")
def first_label_of_each_example_is_kept(parts):
    def collate(batch):
        packed = pack(batch)
        starts = packed["cu_seq_lens_q"][1:-1].long()
        packed["labels"][0, starts] = packed["input_ids"][0, starts]
        return packed

    parts.collate = collate


@plant("X03-twin")
def first_label_is_ignored_in_another_way(parts):
    def collate(batch):
        packed = pack(batch)
        packed["labels"][0, packed["cu_seq_lens_q"][:-1].long()] = -100
        return packed

    parts.collate = collate


@plant("X05-bug")
def twice_the_examples_in_a_step(parts):
    parts.collate, parts.batch_size = pack, 8


@plant("X05-twin")
def the_same_examples_in_one_micro_batch(parts):
    parts.collate, parts.batch_size, parts.accumulate = pack, 8, 1


@plant("X06-bug")
def overflow_is_cut(parts):
    parts.collate = lambda batch: pack([{k: v[:24] for k, v in e.items()} for e in batch])


@plant("X06-twin")
def nothing_overflows(parts):
    parts.collate = lambda batch: pack([{k: v[:512] for k, v in e.items()} for e in batch])


@plant("X07-bug")
def positions_do_not_start_again(parts):
    def collate(batch):
        packed = pack(batch)
        packed["position_ids"] = torch.arange(packed["input_ids"].shape[1])[None]
        return packed

    parts.collate = collate


@plant("X07-twin")
def positions_from_boundaries(parts):
    def collate(batch):
        packed = pack(batch)
        starts = packed["cu_seq_lens_q"].long()
        packed["position_ids"] = torch.cat([torch.arange(n) for n in starts.diff()])[None]
        return packed

    parts.collate = collate


def _tail(batch, label):
    packed = pack(batch)
    missing = -packed["input_ids"].shape[1] % 64
    fill = {"input_ids": PAD, "labels": label}
    for name, value in fill.items():
        packed[name] = F.pad(packed[name], (0, missing), value=value)
    tail = torch.arange(missing)[None]
    packed["position_ids"] = torch.cat([packed["position_ids"], tail], 1)
    if missing:
        end = torch.tensor([packed["input_ids"].shape[1]], dtype=torch.int32)
        packed["cu_seq_lens_q"] = packed["cu_seq_lens_k"] = torch.cat([packed["cu_seq_lens_q"], end])
    return packed


@plant("X08-bug")
def the_padded_tail_is_trained_on(parts):
    parts.collate = lambda batch: _tail(batch, PAD)


@plant("X08-twin")
def the_padded_tail_is_one_ignored_segment(parts):
    parts.collate = lambda batch: _tail(batch, -100)


def _pad_left(batch, *, mask_padding):
    longest = max(len(e["input_ids"]) for e in batch)
    gaps = [longest - len(e["input_ids"]) for e in batch]
    mask = torch.tensor([[0 if mask_padding else 1] * g + [1] * (longest - g) for g in gaps])
    positions = torch.tensor([[0] * g + list(range(longest - g)) for g in gaps])
    return {
        "input_ids": torch.tensor([[PAD] * g + e["input_ids"] for g, e in zip(gaps, batch, strict=True)]),
        "labels": torch.tensor([[-100] * g + e["labels"] for g, e in zip(gaps, batch, strict=True)]),
        "attention_mask": mask,
        "position_ids": positions,
    }


class OnlyAttention(TinyLM):
    """Without the recurrence, which would read left padding in any case."""

    def __init__(self):
        super().__init__()
        for block in self.blocks:
            block.mixer = _Zero()


class _Zero(nn.Module):
    def forward(self, hidden, starts):
        return torch.zeros_like(hidden)


@plant("X09-base")
def attention_alone(parts):
    parts.model = OnlyAttention()


@plant("X09-bug")
def left_padding_is_attended_to(parts):
    parts.collate = lambda batch: _pad_left(batch, mask_padding=False)


@plant("X09-twin")
def left_padding_is_masked(parts):
    parts.collate = lambda batch: _pad_left(batch, mask_padding=True)


class Bidirectional(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.qkv, self.out = inner.qkv, inner.out

    def forward(self, hidden, mask):
        rows, length, width = hidden.shape
        q, k, v = (x.view(rows, length, 2, -1).transpose(1, 2) for x in self.qkv(hidden).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, width))

    causal = False


class Causal(Bidirectional):
    causal = True


def _replace_attention(parts, kind):
    for block in parts.model.blocks:
        block.attention = kind(block.attention)


@plant("X10-bug", "after model")
def the_mask_is_dropped_and_with_it_causality(parts):
    _replace_attention(parts, Bidirectional)


@plant("X10-twin", "after model")
def the_mask_is_dropped_for_the_causal_switch(parts):
    _replace_attention(parts, Causal)
