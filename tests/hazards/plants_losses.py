"""Plants in losses, recomputation and number formats: X04, X19-X24."""

from __future__ import annotations

import torch
from job import mean_loss
from registry import plant
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def _z_loss(logits, labels):
    z = torch.logsumexp(logits[:, :-1], -1)[labels[:, 1:] != -100]
    return mean_loss(logits, labels) + 1e-3 * (z**2).mean()


@plant("X19-base")
def z_loss_in_both_arms(parts):
    parts.loss = _z_loss


@plant("X19-bug")
def fused_loss_without_z_loss(parts):
    parts.loss = mean_loss


@plant("X19-twin")
def fused_loss_in_chunks_with_z_loss(parts):
    def chunked(logits, labels):
        flat, target = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        flat, target = flat[target != -100], target[target != -100]
        parts_ = [
            F.cross_entropy(x, y, reduction="sum") + 1e-3 * (torch.logsumexp(x, -1) ** 2).sum()
            for x, y in zip(flat.split(50), target.split(50), strict=True)
        ]
        return sum(parts_) / len(target)

    parts.loss = chunked


@plant("X20-base")
def one_example_without_labels(parts):
    for example in parts.examples[::5]:
        example["labels"] = [-100] * len(example["labels"])


def _one_by_one(batches):
    found = []
    for batch in batches:
        found += [{k: v[i : i + 1] for k, v in batch.items()} for i in range(len(batch["input_ids"]))]
    return found


@plant("X20-bug")
def micro_batch_of_nothing_but_ignored_labels(parts):
    parts.split = _one_by_one


@plant("X20-twin")
def ignored_micro_batch_counts_nothing(parts):
    parts.split = _one_by_one
    parts.micro_loss = lambda loss, own, total, count: torch.nan_to_num(loss) * (own / total)


class _Stateful(nn.Module):
    """A layer that remembers how often it ran: a replay in the backward sees another state."""

    def __init__(self, inner, *, stateful):
        super().__init__()
        self.inner, self.stateful, self.calls = inner, stateful, 0

    def forward(self, hidden, mask, starts):
        self.calls += 1
        scale = 1.0 if not self.stateful or self.calls % 2 else 0.9
        return self.inner(hidden * scale, mask, starts)


def _checkpointed(parts, *, stateful):
    for block in parts.model.blocks:
        inner = _Stateful(_Plain(block), stateful=stateful)
        block.forward = lambda *a, _i=inner: checkpoint(_i.forward, *a, use_reentrant=False)


class _Plain(nn.Module):
    def __init__(self, block):
        super().__init__()
        object.__setattr__(self, "run", type(block).forward.__get__(block))

    def forward(self, *a):
        return self.run(*a)


@plant("X21-bug", "after model")
def recomputation_sees_another_state(parts):
    _checkpointed(parts, stateful=True)


@plant("X21-twin", "after model")
def recomputation_sees_the_same(parts):
    _checkpointed(parts, stateful=False)


@plant("X22-bug", "after model")
def specialised_on_the_first_shape(parts):
    model = parts.model
    plain, first = model.forward, []

    def forward(input_ids, **rest):
        first.append(input_ids.shape[1])
        rest = {name: value[:, : first[0]] for name, value in rest.items()}
        return plain(input_ids[:, : first[0]], **rest)

    model.forward = forward


@plant("X22-twin", "after model")
def traced_anew_for_each_shape(parts):
    for block in parts.model.blocks:
        block.attention = torch.compile(block.attention, backend="aot_eager", dynamic=True)


def _float8(tensor, scale):
    rounded = (tensor * scale).to(torch.float8_e4m3fn).to(tensor.dtype) / scale
    return tensor + (rounded - tensor).detach()


class _Quantised(nn.Linear):
    """Weights and inputs pass through float8 at a fixed scale."""

    def forward(self, x):
        return F.linear(_float8(x, self.scale), _float8(self.weight, self.scale), self.bias)


def _quantise(parts, scale):
    for block in parts.model.blocks:
        for linear in (block.up, block.down, block.attention.qkv, block.attention.out):
            linear.__class__ = _Quantised
            linear.scale = scale


@plant("X23-bug", "after model")
def float8_underflows(parts):
    _quantise(parts, 1e-3)


@plant("X23-twin", "after model")
def float8_with_a_fitting_scale(parts):
    _quantise(parts, 16.0)


def _round_mantissa(tensor, bits):
    scale = 2.0**bits
    mantissa, exponent = torch.frexp(tensor)
    return tensor + (torch.ldexp(torch.round(mantissa * scale) / scale, exponent) - tensor).detach()


@plant("X24-bug", "after model")
def ten_bit_products_everywhere(parts):
    """What TF32 does to every product, the loss head included."""
    for module in parts.model.modules():
        if isinstance(module, nn.Linear):
            module.forward = lambda x, m=module: F.linear(
                _round_mantissa(x, 11), _round_mantissa(m.weight, 11), m.bias
            )


@plant("X24-twin", "after model")
def highest_precision_asked_for(parts):
    torch.set_float32_matmul_precision("highest")


@plant("X04-bug")
def mean_of_micro_batch_means(parts):
    parts.micro_loss = lambda loss, own, total, count: loss / count


@plant("X04-twin")
def sum_over_tokens_divided_once(parts):
    parts.loss = lambda logits, labels: F.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
    )
    parts.micro_loss = lambda loss, own, total, count: loss / total
