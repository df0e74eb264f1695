"""The hazards of a faster job, planted one at a time: `X11-bug` is wrong, `X11-twin` only looks like it.

A plant is called at three points: before and after the model is made, and after the optimizer is.
"""

from __future__ import annotations

import copy
import random

import torch
from job import PAD, TinyLM, mean_loss, pack
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import IterableDataset

PLANTS: dict[str, object] = {}


def plant(name: str, when: str = "before model"):
    """Register a plant that acts at one point."""

    def register(function):
        def act(parts, now):
            if now == when:
                function(parts)

        PLANTS[name] = act
        return function

    return register


# -- packing ---------------------------------------------------------------------------------------------


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


@plant("X04-bug")
def mean_of_micro_batch_means(parts):
    parts.micro_loss = lambda loss, own, total, count: loss / count


@plant("X04-twin")
def sum_over_tokens_divided_once(parts):
    parts.loss = lambda logits, labels: F.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
    )
    parts.micro_loss = lambda loss, own, total, count: loss / total


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


# -- kernels and gradients -------------------------------------------------------------------------------


def _silu_kernel(factor):
    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return F.silu(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return grad * s * (1 + factor * x * (1 - s))

    return Kernel.apply


class _Activated(nn.Module):
    """Linear and activation in one "kernel"; the block's own activation becomes the identity on it."""

    def __init__(self, block, function):
        super().__init__()
        self.block, self.function = block, function

    def forward(self, hidden, mask, starts):
        b = self.block
        hidden = hidden + b.mixer(b.norms[0](hidden), starts)
        hidden = hidden + b.dropout(b.attention(b.norms[1](hidden), mask))
        return hidden + b.down(self.function(b.up(b.norms[2](hidden))))


def _fuse(parts, function):
    for block in parts.model.blocks:
        plain = block.forward
        wrapper = _Activated(block, function)
        object.__setattr__(block, "forward", lambda *a, _w=wrapper: _w.forward(*a))
        del plain


@plant("X11-bug", "after model")
def forward_right_backward_wrong(parts):
    _fuse(parts, _silu_kernel(0.9))


@plant("X11-twin", "after model")
def forward_and_backward_right(parts):
    _fuse(parts, _silu_kernel(1.0))


@plant("X12-bug", "after model")
def a_kernel_without_backward(parts):
    mixer = parts.model.blocks[0].mixer
    plain = mixer.forward
    mixer.forward = lambda hidden, starts: plain(hidden, starts).detach()


@plant("X12-twin", "after model")
def detached_only_to_look_at(parts):
    mixer = parts.model.blocks[0].mixer
    plain = mixer.forward

    def forward(hidden, starts):
        out = plain(hidden, starts)
        mixer.last_norm = out.detach().norm()
        return out

    mixer.forward = forward


@plant("X13-base", "after model")
def dropout_in_both_arms(parts):
    for block in parts.model.blocks:
        block.dropout = nn.Dropout(0.1)


@plant("X13-bug", "after model")
def dropout_drawn_from_other_numbers(parts):
    parts.before_step = lambda step, model, optimizer: torch.rand(1)


@plant("X13-twin", "after model")
def other_numbers_drawn_beside(parts):
    own = torch.Generator().manual_seed(1)
    parts.before_step = lambda step, model, optimizer: torch.rand(1, generator=own)


@plant("X15-bug", "after model")
def gradients_accumulate_in_bfloat16(parts):
    def round_all(model, number, last):
        for p in model.parameters():
            if p.grad is not None:
                p.grad.copy_(p.grad.bfloat16().float())

    parts.after_backward = round_all


@plant("X15-twin", "after model")
def gradients_accumulate_beside_in_float64(parts):
    def same(model, number, last):
        for p in model.parameters():
            if p.grad is not None:
                p.grad.copy_(p.grad.double().float())

    parts.after_backward = same


@plant("X16-bug")
def master_weights_in_bfloat16(parts):
    def round_weights(step, model, optimizer):
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.bfloat16().float())

    parts.after_step = round_weights


@plant("X16-twin")
def master_weights_copied_exactly(parts):
    def copy_weights(step, model, optimizer):
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.double().float())

    parts.after_step = copy_weights


def _reload(parts, *, forget):
    def act(step, model, optimizer):
        if step != 4:
            return
        state = copy.deepcopy(optimizer.state_dict())
        if forget:
            for entry in state["state"].values():
                entry["step"] = torch.zeros_like(entry["step"])
        optimizer.load_state_dict(state)

    parts.before_step = act


@plant("X17-bug")
def reloaded_optimizer_forgets_its_step(parts):
    _reload(parts, forget=True)


@plant("X17-twin")
def reloaded_optimizer_goes_on(parts):
    _reload(parts, forget=False)


@plant("X18-bug", "after model")
def head_no_longer_tied(parts):
    parts.model.head.weight = nn.Parameter(parts.model.head.weight.detach().clone())


@plant("X18-twin", "after model")
def head_tied_again(parts):
    parts.model.head.weight = parts.model.embed.weight


# -- losses ----------------------------------------------------------------------------------------------


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


# -- data, logging, speed --------------------------------------------------------------------------------


class _Stream(IterableDataset):
    """Examples as a stream; workers that do not share it each send all of it."""

    def __init__(self, examples, *, split):
        order = random.Random(5).sample(range(len(examples)), len(examples))
        self.examples, self.split = [examples[i] for i in order], split

    def __len__(self):
        return len(self.examples)

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        if info is None or not self.split:
            return iter(self.examples)
        # Whole batches in turn, so that the loader's round robin restores the order.
        size, count = 4, info.num_workers
        batches = [self.examples[i : i + size] for i in range(0, len(self.examples), size)]
        return iter([e for b in batches[info.id :: count] for e in b])


@plant("X25-base")
def a_stream_of_examples(parts):
    parts.examples = _Stream(parts.examples, split=False)
    parts.loader_options = {"shuffle": False}


@plant("X25-bug")
def every_worker_sends_everything(parts):
    parts.loader_options = {"shuffle": False, "num_workers": 2}


@plant("X25-twin")
def workers_share_the_stream(parts):
    parts.examples.split = True
    parts.loader_options = {"shuffle": False, "num_workers": 2}


def _deferred(parts, shift):
    waiting = []

    def log(step, loss):
        waiting.append((step, loss))
        if len(waiting) > 1:
            before, value = waiting.pop(0)
            print(f"step {before + shift} loss {float(value):.6f}", flush=True)

    parts.log = log


@plant("X26-bug")
def deferred_value_printed_for_the_next_step(parts):
    _deferred(parts, 1)


@plant("X26-twin")
def deferred_value_printed_for_its_own_step(parts):
    _deferred(parts, 0)


def _noisy(parts, size, shift=0.0):
    def loss(logits, labels):
        noise = random.SystemRandom().gauss(0, size)
        return mean_loss(logits, labels) * (1 + noise + shift)

    parts.loss = loss


@plant("X27-base")
def a_baseline_that_never_repeats(parts):
    _noisy(parts, 3e-4)


@plant("X27-bug")
def more_than_the_noise(parts):
    _noisy(parts, 3e-4, shift=0.01)


@plant("X27-twin")
def the_same_noise(parts):
    _noisy(parts, 3e-4)


@plant("X28-bug")
def hard_tokens_are_dropped(parts):
    def easy(logits, labels):
        losses = F.cross_entropy(
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="none"
        )
        counted = losses[labels[:, 1:].flatten() != -100]
        return counted.sort().values[: int(0.95 * len(counted))].mean()

    parts.loss = easy


@plant("X28-twin")
def the_same_loss_of_sorted_tokens(parts):
    def same(logits, labels):
        losses = F.cross_entropy(
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="none"
        )
        return losses[labels[:, 1:].flatten() != -100].sort().values.mean()

    parts.loss = same


def _fused(parts, *, works):
    """A shim that wants the fused optimizer and falls back without a word."""
    try:
        if not works:
            raise ImportError("no fused kernel")
        parts.optimizer = torch.optim.AdamW(parts.model.parameters(), lr=2e-3, fused=True)
    except ImportError:
        parts.optimizer = torch.optim.AdamW(parts.model.parameters(), lr=2e-3)


@plant("X29-bug", "after model")
def silent_fallback(parts):
    _fused(parts, works=False)


@plant("X29-twin", "after model")
def the_fast_one_is_live(parts):
    _fused(parts, works=True)


@plant("X30-bug")
def half_the_examples_in_a_step(parts):
    """Steps take half the time and do half the work; padded to the same width they even look alike."""
    parts.accumulate = 1


# X30-twin needs no plant: work that was not needed is taken away by --sleep-ms.


# -- several ranks ---------------------------------------------------------------------------------------


def _reduce(parts, wanted):
    """Whether the gradients of a micro-batch are reduced over the ranks."""

    def before_micro_batch(model, number, last):
        model.require_backward_grad_sync = wanted(last)

    parts.before_micro_batch = before_micro_batch


@plant("X14-bug")
def the_last_micro_batch_is_not_reduced(parts):
    _reduce(parts, lambda last: not last)


@plant("X14-twin")
def only_the_last_micro_batch_is_reduced(parts):
    _reduce(parts, lambda last: last)
