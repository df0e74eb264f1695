"""The batch that needs the most memory comes first, several times.

Only in launches made for that. Where every batch has the same number of examples, any of them may meet: it is
the batch of the longest ones. A sampler whose batches differ in number (a token budget) would never make that
one: there it is the largest of those it really makes. Where a batch is no list of examples (a planned row),
it is the one of the next that becomes the largest. The order of everything after it stays; the data set is
asked for its examples beforehand, for a limited time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Hashable, Iterator
from numbers import Integral
from typing import Any

from .core import core

_MOST_S = 120.0
_MOST_EXAMPLES = 200_000
_PEEK = 64  # batches whose number of examples tells whether it is always the same
_IDS = ("input_ids", "tokens", "token_ids", "ids", "text", "prompt")


def install(torch: Any) -> None:
    """Change what a DataLoader draws its batches from."""
    module = torch.utils.data.dataloader
    original = module.DataLoader._index_sampler

    def index_sampler(loader: Any) -> Any:
        found = original.fget(loader)
        if not core.active or isinstance(loader.dataset, torch.utils.data.IterableDataset):
            return found
        return _LongestFirst(found, loader.dataset, loader.collate_fn)

    module.DataLoader._index_sampler = property(index_sampler)


class _LongestFirst:
    def __init__(self, batches: Any, dataset: Any, collate: Any) -> None:
        self.batches, self.dataset, self.collate = batches, dataset, collate

    def __len__(self) -> int:
        return len(self.batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batches, name)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.batches)
        seen = list(itertools.islice(batches, _PEEK))
        worst: Any = None
        try:
            worst = self._worst(seen, batches)
        except Exception:
            core.sink.fault("longest_first.worst")
        if worst is not None:
            for _ in range(core.settings.longest_times):  # optimizer states exist after one step only
                yield worst
        yield from seen
        yield from batches

    def _worst(self, seen: list[Any], rest: Iterator[Any]) -> Any:
        """The batch to put first, None where lengths are unknown; batches drawn to find it go to `seen`."""
        lengths = _lengths_of(self.dataset)
        if not seen or not lengths:
            return None
        if not isinstance(seen[0], (list, tuple)):  # no batches: an example at a time
            return max(lengths, key=lambda index: lengths[index])
        if not all(_of_examples(batch, lengths) for batch in seen):
            return max(seen, key=self._collated)
        counts = {len(batch) for batch in (seen[:-1] or seen)}
        if len(counts) == 1:
            longest = sorted(lengths, key=lambda index: (lengths[index], index), reverse=True)[: len(seen[0])]
            return longest if len(longest) == len(seen[0]) else None
        seen.extend(itertools.islice(rest, _MOST_EXAMPLES))
        known = [batch for batch in seen if batch and all(index in lengths for index in batch)]
        packed = max(known, key=lambda batch: sum(lengths[index] for index in batch), default=None)
        longest = [max(lengths[index] for index in batch) * len(batch) for batch in known]
        padded = known[longest.index(max(longest))] if known else None
        if packed is None or packed == padded:
            return packed
        return max((packed, padded), key=self._collated)

    def _collated(self, batch: Any) -> int:
        """Elements of the largest tensor the batch becomes, padded or packed as the job does it."""
        together = getattr(self.dataset, "__getitems__", None)  # as DataLoader asks for a batch
        made = self.collate(together(batch) if together else [self.dataset[index] for index in batch])
        values = made.values() if hasattr(made, "values") else made
        values = values if isinstance(values, (list, tuple, type({}.values()))) else [values]
        return max((int(v.numel()) for v in values if hasattr(v, "numel")), default=0)


_known: dict[int, dict[Any, int]] = {}


def _lengths_of(dataset: Any) -> dict[Any, int]:
    """Length of each example by its index, asked for once; empty where lengths cannot be told."""
    lengths = _known.get(id(dataset))
    if lengths is None:
        lengths = _known[id(dataset)] = _lengths(dataset)
        most = max(lengths.values(), default=0)
        values = {"longest_first.examples": float(len(lengths)), "longest_first.tokens": float(most)}
        core.emit("counters", {"values": values})
    return lengths


def _of_examples(batch: Any, lengths: dict[Any, int]) -> bool:
    """It holds indices of examples, and nothing else that a data set of its own understands."""
    known = (isinstance(i, Integral) or (isinstance(i, Hashable) and i in lengths) for i in batch)
    return type(batch) in (list, tuple) and all(known)


def _lengths(dataset: Any) -> dict[Any, int]:
    """Of as many examples as the time allows."""
    found: dict[Any, int] = {}
    until = time.monotonic() + _MOST_S
    for index in range(min(len(dataset), _MOST_EXAMPLES)):
        length = _length(dataset[index])
        if length is not None:
            found[index] = length
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
