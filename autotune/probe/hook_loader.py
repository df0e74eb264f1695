"""DataLoader: its arguments and call site, every batch it gives to the loop, and the wait for it."""

from __future__ import annotations

import functools
import inspect
import io
import pickle
import time
from time import perf_counter_ns
from typing import Any
from weakref import WeakKeyDictionary

from . import batches, evaluation, models, sites, stop
from .core import call_parity, core, hook
from .hook_calls import count
from .steps import steps
from .wrapping import observe

_site_of: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_loader_of: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # iterator -> loader
_records: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
_MOST_LENGTHS = 512
_ENOUGH_LENGTHS = 128  # examples of packed rows
_ENOUGH_ROWS = 64  # rows whose labels are looked at
_OWN = ("sampled", "waiting", "reported", "gap_rows")  # of a loader's record: not for the file
_DIGESTS = 3  # batches that are told apart by their values
_PICKLE_BYTES = 64 << 20
_SETTLED_ORDERS = ("builtins", "torch")  # packages whose samplers give one order however often they are asked
_PICKLE_S = 0.5


def install(torch: Any) -> None:
    module = torch.utils.data.dataloader
    if core.settings.full:
        observe(module.DataLoader, "__init__", after=_made)
    observe(module.DataLoader, "__iter__", after=_iterated)
    _next(torch, module._BaseDataLoaderIter)
    worker = torch.utils.data._utils.worker
    original_worker = worker._worker_loop

    @functools.wraps(original_worker)
    def worker_loop(*args: Any, **kwargs: Any) -> Any:
        core.disarm("DataLoader worker")
        return original_worker(*args, **kwargs)

    worker._worker_loop = worker_loop


def _made(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    seen = sites.record("loader", "torch.utils.data.DataLoader", original, args[1:], kwargs)
    if seen is not None:
        _site_of[args[0]] = seen.id


def _iterated(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    if type(result).__module__ == "torch.utils.data.dataloader":
        _loader_of[result] = args[0]
        if getattr(args[0], "num_workers", 0) and not getattr(args[0], "persistent_workers", False):
            count("worker_starts")
            if core.settings.full:
                sites.record("loader_iterator", "torch.utils.data.DataLoader.__iter__")


def _next(torch: Any, base: Any) -> None:
    original = base.__next__

    @hook
    def begins() -> None:
        stop.check()
        steps.goes_on()
        steps.beside_ends()
        steps.activity()

    @hook
    def loaded(iterator: Any, batch: Any, wait_ns: int) -> None:
        loader = _loader_of.get(iterator)
        if evaluation.is_evaluation(torch, loader is not None and loader in steps.training_loaders):
            evaluation.fetched()
            steps.loaded(None, wait_ns, evaluation=True)
            return
        models.before_training(torch)
        known = _records.get(loader) if loader is not None else None
        lengths = known is None or known["sampled"] < _ENOUGH_LENGTHS
        side = known is None or known["padding_side"] in (None, "none")
        described = batches.describe(batch, torch, *models.padding(), lengths=lengths, side=side)
        if described is not None:
            described.source = loader
            if core.settings.full and (known is None or len(known["digests"]) < _DIGESTS):
                described.digest = batches.digest(batch, torch)
                described.largest = batches.largest(batch, torch)
        call_parity("batch", batch)
        steps.loaded(described, wait_ns, evaluation=False)
        if loader is not None:
            _note(torch, loader, described)

    @functools.wraps(original)
    def next_batch(self: Any) -> Any:
        begins()
        start = perf_counter_ns()
        batch = original(self)
        loaded(self, batch, perf_counter_ns() - start)
        return batch

    base.__next__ = next_batch


def _note(torch: Any, loader: Any, batch: batches.Batch | None) -> None:
    """One record per loader; example lengths and the padding side are sampled from the first batches."""
    record = _records.get(loader)
    if record is None:
        record = _records[loader] = _describe(torch, loader, len(_records))
        core.emit("loader", {k: v for k, v in record.items() if k not in _OWN})
    if batch is not None and batch.digest and len(record["digests"]) < _DIGESTS:
        record["digests"].append(batch.digest)
    if batch is not None and batch.label_gaps is not None and record["gap_rows"] < _ENOUGH_ROWS:
        rows = int(batch.label_gaps.numel())
        record["gap_rows"] += rows
        count("labelled_rows", rows)
        count("label_gaps", float(batch.label_gaps.sum()))
        count("rows_with_label_gaps", float((batch.label_gaps > 0).sum()))
    if batch is None or batch.row_lengths is None:
        return
    if batch.padding_side is not None and record["padding_side"] in (None, "none"):
        record["padding_side"] = batch.padding_side
    if record["sampled"] < _MOST_LENGTHS:
        record["sampled"] += batch.row_lengths.numel()
        record["waiting"].append(batch)


def report() -> None:
    """Send the loaders again with what the batches showed meanwhile."""
    for record in list(_records.values()):
        record["example_lengths"] += [n for batch in record["waiting"] for n in batch.lengths]
        record["waiting"] = []
        state = (len(record["example_lengths"]), record["padding_side"], len(record["digests"]))
        if record["reported"] != state:
            record["reported"] = state
            core.emit("loader", {k: v for k, v in record.items() if k not in _OWN})


def _describe(torch: Any, loader: Any, number: int) -> dict[str, Any]:
    sampler = getattr(loader, "sampler", None)
    batch_sampler = getattr(loader, "batch_sampler", None)
    standard = type(batch_sampler).__name__ == "BatchSampler"
    iterable = isinstance(loader.dataset, torch.utils.data.IterableDataset)
    collate = getattr(loader, "collate_fn", None)
    return {
        "key": f"loader-{number}",
        "batch_size": getattr(loader, "batch_size", None) or getattr(batch_sampler, "batch_size", None),
        "num_workers": loader.num_workers,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(loader.persistent_workers),
        "prefetch_factor": loader.prefetch_factor,
        "drop_last": bool(loader.drop_last or getattr(batch_sampler, "drop_last", False)),
        "iterable": iterable,
        "picklable": _picklable(loader) if core.settings.full else None,
        "examples": None if iterable else _length(loader.dataset),
        "batches": _length(loader),
        "sampler": type(sampler if standard or batch_sampler is None else batch_sampler).__name__,
        "own_batch_sampler": batch_sampler is not None and not standard,
        "order_at_once": _draws_at_once(sampler if batch_sampler is None else batch_sampler),
        "collate": getattr(collate, "__qualname__", type(collate).__name__),
        "padding_side": None,
        "digests": [],
        "example_lengths": [],
        "sampled": 0,
        "gap_rows": 0,
        "waiting": [],
        "reported": None,
        "site": _site_of.get(loader),
    }


def _draws_at_once(order: Any) -> bool:
    """A sampler that makes its order when it is asked for an iterator, not index by index."""
    kind = type(order)
    if kind.__module__.split(".")[0] in _SETTLED_ORDERS:
        return False
    return not inspect.isgeneratorfunction(getattr(kind, "__iter__", None))


def _length(value: Any) -> int | None:
    try:
        return len(value)
    except Exception:
        return None


class _Limit(Exception):
    """The object is too large or too slow to try in full."""


class _Nowhere(io.RawIOBase):
    """Takes bytes, keeps none, and gives up at a size or time limit."""

    def __init__(self) -> None:
        self.left = _PICKLE_BYTES
        self.until = time.monotonic() + _PICKLE_S

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = len(data)
        self.left -= size
        if self.left < 0 or time.monotonic() > self.until:
            raise _Limit
        return size


def _picklable(loader: Any) -> bool | None:
    """Whether data set and collator can be sent to a worker process; None when that takes too long to try."""
    try:
        pickler = pickle.Pickler(_Nowhere(), protocol=pickle.HIGHEST_PROTOCOL)
        pickler.dump((loader.collate_fn, getattr(loader, "worker_init_fn", None)))
        pickler.dump(loader.dataset)
        return True
    except _Limit:
        return None
    except Exception:
        return False
