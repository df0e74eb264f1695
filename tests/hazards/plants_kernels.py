"""Plants in kernels, gradients, weights and optimizers: X11-X18."""

from __future__ import annotations

import copy

import torch
from registry import plant
from torch import nn
from torch.nn import functional as F


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
