"""The batch that needs the most memory comes first, several times.

Only in launches made for that. Where every batch has the same number of examples, any of them may meet: it is
the batch of the longest ones. A sampler whose batches differ in number (a token budget) would never make that
one: there it is the largest of those it really makes. Where a batch is no list of examples (a planned row),
it is the one of the next that becomes the largest. The order of everything after it stays; the data set is
asked for its examples beforehand, for a limited time. What was put first is told only where it is known to be
the worst.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Hashable, Iterator, Set
from typing import Any

from .core import core

_MOST_S = 120.0
_MOST_EXAMPLES = 1_000_000
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
        return _LongestFirst(found, loader.dataset, loader.collate_fn, loader._auto_collation)

    module.DataLoader._index_sampler = property(index_sampler)


class _LongestFirst:
    """Batches as before, behind the worst one. `together`: a batch is fetched example by example."""

    def __init__(self, batches: Any, dataset: Any, collate: Any, together: bool = True) -> None:
        self.batches, self.dataset, self.collate, self.together = batches, dataset, collate, together

    def __len__(self) -> int:
        return len(self.batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batches, name)

    def __iter__(self) -> Iterator[Any]:
        drawn = _Drawn(iter(self.batches))
        drawn.more(_PEEK)
        worst: Any = None
        try:
            worst = self._worst(drawn)
        except Exception:
            core.sink.fault("longest_first.worst")
        if worst is not None:
            _tell(self.dataset)
            for _ in range(core.settings.longest_times):  # optimizer states exist after one step only
                yield list(worst) if type(worst) is list else worst  # the job may change its batch
        yield from drawn.seen
        if drawn.fault is not None:
            raise drawn.fault
        yield from drawn.rest

    def _worst(self, drawn: _Drawn) -> Any:
        """The batch to put first, None where lengths are unknown; batches drawn to find it are kept."""
        seen, lengths = drawn.seen, _lengths_of(self.dataset)
        if not seen or not lengths or any(isinstance(batch, (Iterator, Set, range)) for batch in seen):
            return None  # to be gone through once only, or not to be made of other examples
        if not self.together and _index(seen[0], lengths) is not None:  # an example at a time
            return _like(seen[0], max(lengths, key=lambda index: lengths[index]))
        if not all(_of_examples(batch, lengths) for batch in seen):
            return max(seen, key=self._collated)
        counts = {len(batch) for batch in (seen[:-1] or seen)}
        if len(counts) == 1:
            longest = sorted(lengths, key=lambda index: (lengths[index], index), reverse=True)[: len(seen[0])]
            return _like(seen[0], longest) if len(longest) == len(seen[0]) > 0 else None
        drawn.more(_MOST_EXAMPLES)
        indices = [[_index(i, lengths) for i in batch] for batch in seen]
        known = [n for n, batch in enumerate(indices) if batch and all(index in lengths for index in batch)]
        if not known:
            return None
        packed = max(known, key=lambda n: sum(lengths[index] for index in indices[n]))
        padded = max(known, key=lambda n: max(lengths[index] for index in indices[n]) * len(indices[n]))
        if packed == padded:
            return seen[packed]
        return max((seen[packed], seen[padded]), key=self._collated)

    def _collated(self, batch: Any) -> int:
        """Elements of the largest tensor the batch becomes, padded or packed as the job does it."""
        made = self.collate(self._fetched(batch))
        values = made.values() if hasattr(made, "keys") else made
        values = values if isinstance(values, (list, tuple, type({}.values()))) else [values]
        return max((int(v.numel()) for v in values if hasattr(v, "numel")), default=0)

    def _fetched(self, batch: Any) -> Any:
        """As DataLoader asks for it."""
        if not self.together:
            return self.dataset[batch]
        at_once = getattr(self.dataset, "__getitems__", None)
        return at_once(batch) if at_once else [self.dataset[index] for index in batch]


class _Drawn:
    """What was drawn beforehand; a fault of the sampler comes where it would have come."""

    def __init__(self, rest: Iterator[Any]) -> None:
        self.rest, self.seen, self.fault = rest, list[Any](), None

    def more(self, count: int) -> None:
        until = time.monotonic() + _MOST_S
        try:
            while count and self.fault is None and time.monotonic() < until:
                self.seen.append(next(self.rest))
                count -= 1
        except StopIteration:
            pass
        except Exception as fault:
            self.fault = fault


_known: dict[int, tuple[Any, dict[Any, int], bool]] = {}  # the data set too: else another may get its number


def _lengths_of(dataset: Any) -> dict[Any, int]:
    """Length of each example by its index, asked for once; empty where lengths cannot be told."""
    if id(dataset) not in _known:
        _known[id(dataset)] = (dataset, *_lengths(dataset))
    return _known[id(dataset)][1]


def _tell(dataset: Any) -> None:
    """What was put first; nothing where a longer example may not have been asked for."""
    _, lengths, all_asked = _known[id(dataset)]
    if all_asked:
        most = float(max(lengths.values()))
        values = {"longest_first.examples": float(len(lengths)), "longest_first.tokens": most}
        core.emit("counters", {"values": values})


def _index(value: Any, lengths: dict[Any, int]) -> Any:
    """The number of an example as it was asked for: also one in a tensor; None for anything else."""
    if getattr(value, "ndim", 0) == 0 and hasattr(value, "__index__"):
        return value.__index__()
    return value if isinstance(value, Hashable) and value in lengths else None


def _of_examples(batch: Any, lengths: dict[Any, int]) -> bool:
    """It holds indices of examples, and nothing else that a data set of its own understands."""
    if type(batch) not in (list, tuple) and not _is_array(batch, "torch", "Tensor", "numpy", "ndarray"):
        return False
    return all(_index(i, lengths) is not None for i in batch)


def _is_array(value: Any, *names: str) -> bool:
    pairs = zip(names[::2], names[1::2], strict=True)
    kinds = (getattr(sys.modules.get(module), kind, None) for module, kind in pairs)
    return any(kind is not None and isinstance(value, kind) for kind in kinds)


def _like(sample: Any, found: Any) -> Any:
    """An index, or a list of them, in the form that the sampler gives."""
    if _is_array(sample, "torch", "Tensor"):
        return sample.new_tensor(found)
    if _is_array(sample, "numpy", "ndarray", "numpy", "generic"):
        return sys.modules["numpy"].asarray(found, dtype=sample.dtype)[()]
    return [_like(sample[0], index) for index in found] if isinstance(found, list) else found


def _lengths(dataset: Any) -> tuple[dict[Any, int], bool]:
    """Of as many examples as the time allows; whether these are all."""
    found: dict[Any, int] = {}
    until = time.monotonic() + _MOST_S
    count = min(len(dataset), _MOST_EXAMPLES)
    for index in range(count):
        length = _length(dataset[index])
        if length is not None:
            found[index] = length
        if time.monotonic() > until:
            return found, index + 1 == len(dataset)
    return found, count == len(dataset)


def _length(example: Any) -> int | None:
    """Of its token ids by name, else of its longest sequence."""
    if hasattr(example, "keys"):
        for name in _IDS:
            if name in example and _is_long(example[name]):
                return len(example[name])
        values = [example[name] for name in example.keys()]  # noqa: SIM118
    else:
        sequence = isinstance(example, (list, tuple))
        if sequence and example and isinstance(example[0], int):
            return len(example)  # the token ids themselves
        values = list(example) if sequence else [example]
    return max((len(value) for value in values if _is_long(value)), default=None)


def _is_long(value: Any) -> bool:
    """It has a length: a number in a tensor has none."""
    return hasattr(value, "__len__") and getattr(value, "ndim", 1) > 0
