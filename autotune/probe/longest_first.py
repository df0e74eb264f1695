"""The batch of the longest examples comes first, several times: a few steps meet the most memory.

Only in launches made for that. The order of everything after it stays; the data set is asked for its examples
beforehand, for a limited time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from .core import core

_MOST_S = 120.0
_MOST_EXAMPLES = 200_000
_IDS = ("input_ids", "tokens", "token_ids", "ids", "text", "prompt")


def install(torch: Any) -> None:
    """Change what a DataLoader draws its batches from."""
    module = torch.utils.data.dataloader
    original = module.DataLoader._index_sampler

    def index_sampler(loader: Any) -> Any:
        found = original.fget(loader)
        if not core.active or isinstance(loader.dataset, torch.utils.data.IterableDataset):
            return found
        return _LongestFirst(found, loader.dataset)

    module.DataLoader._index_sampler = property(index_sampler)


class _LongestFirst:
    def __init__(self, batches: Any, dataset: Any) -> None:
        self.batches, self.dataset = batches, dataset

    def __len__(self) -> int:
        return len(self.batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batches, name)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.batches)
        first = next(batches, None)
        if first is None:
            return
        count = len(first) if isinstance(first, (list, tuple)) else 1
        longest = _longest(self.dataset, count)
        if longest:
            for _ in range(core.settings.longest_times):  # optimizer states exist after one step only
                yield longest if isinstance(first, (list, tuple)) else longest[0]
        yield first
        yield from batches


_known: dict[int, list[tuple[int, int]]] = {}


def _longest(dataset: Any, count: int) -> list[int]:
    """Indices of the longest examples; empty where lengths cannot be told."""
    lengths = _known.get(id(dataset))
    if lengths is None:
        lengths = _known[id(dataset)] = _lengths(dataset)
        most = max(lengths, default=(0, 0))[0]
        values = {"longest_first.examples": float(len(lengths)), "longest_first.tokens": float(most)}
        core.emit("counters", {"values": values})
    order = sorted(lengths, reverse=True)[:count]
    return [index for _, index in order] if len(order) == count else []


def _lengths(dataset: Any) -> list[tuple[int, int]]:
    """(length, index) of as many examples as the time allows."""
    found: list[tuple[int, int]] = []
    until = time.monotonic() + _MOST_S
    for index in range(min(len(dataset), _MOST_EXAMPLES)):
        length = _length(dataset[index])
        if length is not None:
            found.append((length, index))
        if time.monotonic() > until:
            break
    return found


def _length(example: Any) -> int | None:
    """Of its token ids by name, else of its longest sequence."""
    if hasattr(example, "keys"):
        for name in _IDS:
            if name in example and hasattr(example[name], "__len__"):
                return len(example[name])
        values = [example[name] for name in example.keys()]  # noqa: SIM118
    else:
        sequence = isinstance(example, (list, tuple))
        if sequence and example and isinstance(example[0], int):
            return len(example)  # the token ids themselves
        values = list(example) if sequence else [example]
    sizes = [len(v) for v in values if hasattr(v, "__len__") and getattr(v, "ndim", 1) > 0]
    return max(sizes, default=None)
