"""A small language model trained in half precision, with right and wrong replacements of its attention.

`--half autocast|parameters|fsdp2|none`; `--attention eager` is the unchanged job, `sdpa` a right replacement,
the others are wrong in the backward or in the mask.
"""

from __future__ import annotations

import argparse
import contextlib
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

VOCABULARY, WIDTH, HEADS, LAYERS = 211, 64, 4, 4


class Scale(torch.autograd.Function):
    """The identity whose gradient is `factor` times what it should be."""

    @staticmethod
    def forward(ctx, value, factor):
        ctx.factor = factor
        return value.view_as(value)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


def eager(q, k, v, mask):
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1, dtype=torch.float32).to(v.dtype) @ v


def sdpa(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def scaled_dq(q, k, v, mask):
    """Both backward factors of the scores are off by a tenth, as with a scale that is applied twice."""
    return sdpa(Scale.apply(q, 1.1), k, v, mask)


def last_key_lost(q, k, v, mask):
    """The mask hides each position from itself."""
    own = torch.eye(mask.shape[-1], dtype=torch.bool)
    first = torch.zeros_like(own)
    first[0, 0] = True
    alone = (mask & ~own).sum(-1, keepdim=True) == 0
    return sdpa(q, k, v, (mask & ~own) | (mask & alone) | first & mask)


def dropped_dk(q, k, v, mask):
    """A tenth of the heads' channels of k get no gradient."""
    keep = torch.arange(k.shape[-1]) % 8 != 0
    return sdpa(q, torch.where(keep, k, k.detach()), v, mask)


class MixingBackward(torch.autograd.Function):
    """The right forward; the backward of an attention that sees all earlier tokens of the row."""

    @staticmethod
    def forward(ctx, q, k, v, mask):
        ctx.save_for_backward(q, k, v)
        return sdpa(q, k, v, mask)

    @staticmethod
    def backward(ctx, gradient):
        parts = [t.detach().requires_grad_() for t in ctx.saved_tensors]
        with torch.enable_grad():
            mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        return *torch.autograd.grad(mixed, parts, gradient), None


ATTENTION = {
    "mixing-backward": MixingBackward.apply,
    "eager": eager,
    "sdpa": sdpa,
    "scaled-dq": scaled_dq,
    "wrong-mask": last_key_lost,
    "dropped-dk": dropped_dk,
}


class LostBias(torch.autograd.Function):
    """A linear layer whose bias misses the gradient of the second half of all tokens."""

    @staticmethod
    def forward(ctx, hidden, weight, bias):
        ctx.save_for_backward(hidden, weight)
        return F.linear(hidden, weight, bias)

    @staticmethod
    def backward(ctx, gradient):
        hidden, weight = ctx.saved_tensors
        gradient = gradient.to(weight.dtype)
        flat, rows = gradient.flatten(0, -2), hidden.flatten(0, -2).to(weight.dtype)
        return gradient @ weight, flat.T @ rows, flat[: len(flat) // 2].sum(0)


class Block(nn.Module):
    def __init__(self, attention, lost_bias):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.attention, self.lost_bias = attention, lost_bias

    def forward(self, hidden, mask):
        rows, length, _ = hidden.shape
        normed = self.first(hidden)
        parts = (self.query(normed), self.key(normed), self.value(normed))
        q, k, v = (x.view(rows, length, HEADS, -1).transpose(1, 2) for x in parts)
        mixed = self.attention(q, k, v, mask[:, None]).transpose(1, 2).reshape(rows, length, WIDTH)
        hidden = hidden + self.out(mixed)
        wide = self.second(hidden)
        if self.lost_bias:
            weight, bias = self.up.weight.to(wide.dtype), self.up.bias.to(wide.dtype)
            wide = LostBias.apply(wide, weight, bias)
        else:
            wide = self.up(wide)
        return hidden + self.down(F.gelu(wide))


class Model(nn.Module):
    def __init__(self, attention, lost_bias):
        super().__init__()
        self.embed, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(128, WIDTH)
        self.blocks = nn.ModuleList(Block(attention, lost_bias) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, input_ids, position_ids, labels=None, attention_mask=None):
        rows, length = input_ids.shape
        mask = torch.ones(length, length, dtype=torch.bool).tril().expand(rows, length, length)
        if attention_mask is not None:
            mask = mask & attention_mask.bool()[:, None, :] | torch.eye(length, dtype=torch.bool)
        else:
            document = (position_ids == 0).cumsum(-1)
            mask = mask & (document[:, :, None] == document[:, None, :])
        hidden = self.embed(input_ids) + self.positions(position_ids)
        for block in self.blocks:
            hidden = block(hidden, mask)
        logits = self.head(self.norm(hidden))
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}


def collate(examples, packed):
    if packed:
        ids = [torch.tensor(e) for e in examples]
        labels = [torch.cat([torch.tensor([-100]), e[1:]]) for e in ids]
        positions = [torch.arange(len(e)) for e in ids]
        rows = {"input_ids": ids, "labels": labels, "position_ids": positions}
        return {name: torch.cat(values)[None] for name, values in rows.items()}
    longest = max(len(e) for e in examples)
    pads = [longest - len(e) for e in examples]
    return {
        "input_ids": torch.tensor([e + [0] * n for e, n in zip(examples, pads, strict=True)]),
        "labels": torch.tensor([[-100, *e[1:]] + [-100] * n for e, n in zip(examples, pads, strict=True)]),
        "position_ids": torch.arange(longest).expand(len(examples), longest),
        "attention_mask": torch.tensor([[1] * len(e) + [0] * n for e, n in zip(examples, pads, strict=True)]),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", choices=["autocast", "parameters", "fsdp2", "none"], default="autocast")
    parser.add_argument("--attention", choices=ATTENTION, default="eager")
    parser.add_argument("--lost-bias", action="store_true")
    parser.add_argument("--layout", choices=["padded", "packed"], default="padded")
    parser.add_argument("--fail-in-float32", action="store_true")
    parser.add_argument("--no-room-for-states", action="store_true", help="in float32")
    parser.add_argument("--steps", type=int, default=40)
    flags = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model(ATTENTION[flags.attention], flags.lost_bias)
    rank, world = 0, 1
    if flags.half == "parameters":
        model.to(torch.bfloat16)
    if flags.half == "fsdp2":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        dist.init_process_group("gloo")
        rank, world = dist.get_rank(), dist.get_world_size()
        mesh = dist.init_device_mesh("cpu", (world,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draw = random.Random(3)
    examples = [[draw.randrange(1, VOCABULARY) for _ in range(draw.randrange(8, 40))] for _ in range(320)]
    loader = DataLoader(
        examples[rank::world], batch_size=8, collate_fn=lambda rows: collate(rows, flags.layout == "packed")
    )
    for number, batch in enumerate(loader):
        if number >= flags.steps:
            break
        autocast = (
            torch.autocast("cpu", torch.bfloat16) if flags.half == "autocast" else contextlib.nullcontext()
        )
        with autocast:
            output = model(**batch)
        if flags.fail_in_float32 and output["logits"].dtype == torch.float32:
            raise MemoryError("planted: float32 does not fit")
        output["loss"].backward()
        optimizer.step()
        if flags.no_room_for_states and output["logits"].dtype == torch.float32 and optimizer.state:
            raise MemoryError("planted: the optimizer's states do not fit in float32")
        optimizer.zero_grad()
        print(f"step {number} loss {output['loss'].item():.6f}", flush=True)


if __name__ == "__main__":
    main()
