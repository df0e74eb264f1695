"""Hooks on torch itself, installed when `import torch` has ended: backward, optimizers, DataLoader, ranks."""

from __future__ import annotations

import functools
from time import perf_counter_ns
from types import ModuleType
from typing import Any

from . import batches, finder, ranks, stop
from .core import call_parity, core, hook
from .steps import steps


def install(torch: ModuleType) -> None:
    _backward(torch)
    _optimizers(torch)
    _loader(torch)
    torch.cuda._lazy_call(ranks.cuda_started)
    finder.when_imported("torch.distributed.distributed_c10d", _process_group)


def _backward(torch: Any) -> None:
    @hook
    def begins(tensors: Any) -> None:
        stop.check()
        if steps.backward_begins():
            if core.rank is None or not steps.index:
                _first_backward()
            call_parity("before_backward", tensors)

    @hook
    def ended(completed: bool) -> None:
        steps.backward_ended(completed)
        if completed and not steps._backward_depth:
            call_parity("after_backward")

    original_method = torch.Tensor.backward
    original_function = torch.autograd.backward

    @functools.wraps(original_method)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        begins((self,))
        completed = False
        try:
            result = original_method(self, *args, **kwargs)
            completed = True
            return result
        finally:
            ended(completed)

    @functools.wraps(original_function)
    def function(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        begins(tuple(tensors) if isinstance(tensors, (tuple, list)) else (tensors,))
        completed = False
        try:
            result = original_function(tensors, *args, **kwargs)
            completed = True
            return result
        finally:
            ended(completed)

    torch.Tensor.backward = method
    torch.autograd.backward = function


_backward_seen = False


def _first_backward() -> None:
    global _backward_seen
    ranks.promote("backward")
    if not _backward_seen:
        _backward_seen = True
        core.emit("first_backward", {"at_s": perf_counter_ns() / 1e9})


def _optimizers(torch: Any) -> None:
    optimizer_module = __import__("sys").modules["torch.optim.optimizer"]

    @hook
    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        stop.check()
        ranks.promote("optimizer step")
        call_parity("before_optimizer", optimizer)
        steps.optimizer_begins()

    @hook
    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        steps.optimizer_ended()

    optimizer_module.register_optimizer_step_pre_hook(before)
    optimizer_module.register_optimizer_step_post_hook(after)


def _loader(torch: Any) -> None:
    base = torch.utils.data.dataloader._BaseDataLoaderIter
    original = base.__next__

    @hook
    def loaded(batch: Any, wait_ns: int) -> None:
        stop.check()
        evaluation = not torch.is_grad_enabled()
        described = None if evaluation else batches.describe(batch, torch)
        if not evaluation:
            call_parity("batch", batch)
        steps.loaded(described, wait_ns, evaluation)

    @hook
    def begins() -> None:
        steps.activity()

    @functools.wraps(original)
    def next_batch(self: Any) -> Any:
        begins()
        start = perf_counter_ns()
        batch = original(self)
        loaded(batch, perf_counter_ns() - start)
        return batch

    base.__next__ = next_batch
    worker = torch.utils.data._utils.worker
    original_worker = worker._worker_loop

    @functools.wraps(original_worker)
    def worker_loop(*args: Any, **kwargs: Any) -> Any:
        core.disarm("DataLoader worker")
        return original_worker(*args, **kwargs)

    worker._worker_loop = worker_loop


def _process_group(module: Any) -> None:
    original = module.init_process_group

    @hook
    def started() -> None:
        ranks.promote("init_process_group")

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        started()
        return result

    module.init_process_group = init_process_group
    distributed = __import__("sys").modules.get("torch.distributed")
    if distributed is not None:
        distributed.init_process_group = init_process_group  # type: ignore[attr-defined]
