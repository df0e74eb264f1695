"""Plants in data, logging and claims of speed: X25-X30."""

from __future__ import annotations

import random

import torch
from job import mean_loss
from registry import plant
from torch.nn import functional as F
from torch.utils.data import IterableDataset


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
