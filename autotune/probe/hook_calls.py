"""Calls in user code that the fixes must find again: optimizer, clipping, compile, sharding, switches."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from . import finder, optimizer_facts, rewalked, sites
from .core import call_parity, core
from .wrapping import observe

counts: dict[str, float] = {}


def count(name: str, by: float = 1.0) -> None:
    counts[name] = counts.get(name, 0.0) + by


def install(torch: Any) -> None:
    """All modes: what counters and parity need."""
    optimizer = torch.optim.Optimizer
    observe(optimizer, "__init__", after=_optimizer_made)
    observe(optimizer, "zero_grad", before=_zero_grad)
    clip = sys.modules["torch.nn.utils.clip_grad"]
    observe(clip, "clip_grad_norm_", after=_clipped)
    torch.nn.utils.clip_grad_norm_ = clip.clip_grad_norm_  # type: ignore[attr-defined]
    observe(torch.autograd, "grad", before=_gradients)
    observe(torch.cuda.memory, "empty_cache", before=_empty_cache)
    torch.cuda.empty_cache = torch.cuda.memory.empty_cache
    if core.settings.full:
        _sites(torch)


def _sites(torch: Any) -> None:
    def simple(kind: str, callee: str) -> Any:
        def before(original: Any, args: Any, kwargs: Any) -> None:
            sites.record(kind, callee, original, args, kwargs, only="direct")

        return before

    def method(kind: str, callee: str) -> Any:
        def before(original: Any, args: Any, kwargs: Any) -> None:
            sites.record(kind, callee, original, args[1:], kwargs, only="direct")

        return before

    observe(torch, "compile", before=simple("compile", "torch.compile"))
    observe(torch.nn.Module, "compile", before=method("compile", "torch.nn.Module.compile"))
    observe(
        torch,
        "use_deterministic_algorithms",
        before=simple("debug_flag", "torch.use_deterministic_algorithms"),
    )
    for name in ("set_detect_anomaly", "detect_anomaly"):
        observe(
            getattr(torch.autograd, name), "__init__", before=method("debug_flag", f"torch.autograd.{name}")
        )
    observe(torch, "set_num_threads", before=simple("threads", "torch.set_num_threads"))
    observe(torch.profiler.profile, "__init__", before=_profiler)
    finder.when_imported("torch.nn.parallel.distributed", _ddp)
    finder.when_imported("torch.distributed.fsdp", _fsdp)
    finder.when_imported("torch.distributed.algorithms._checkpoint.checkpoint_wrapper", _checkpoint_wrapper)


def _optimizer_made(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    optimizer_facts.made(args[0])
    if core.settings.full:
        optimizer_facts.noted(args[0])


def _zero_grad(original: Any, args: Any, kwargs: Any) -> None:
    from .steps import steps

    rewalked.gradients_reset(steps)
    to_none = kwargs.get("set_to_none", args[1] if len(args) > 1 else True)
    if not to_none:
        count("zero_grad_to_zeros")
    if core.settings.full:
        sites.record("zero_grad", "torch.optim.Optimizer.zero_grad", original, args[1:], kwargs)


def _clipped(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    from .steps import steps

    steps.not_beside(elapsed_ns)
    call_parity("grad_norm", result)
    if core.settings.full:
        sites.record(
            "clip_grad", "torch.nn.utils.clip_grad_norm_", original, args, kwargs, elapsed_ns=elapsed_ns
        )


def _gradients(original: Any, args: Any, kwargs: Any) -> None:
    count("gradient_calls")


def _empty_cache(original: Any, args: Any, kwargs: Any) -> None:
    count("empty_cache")
    if core.settings.full:
        sites.record("empty_cache", "torch.cuda.empty_cache", original, args, kwargs)


def _profiler(original: Any, args: Any, kwargs: Any) -> None:
    count("profilers_made")
    sites.record("debug_flag", "torch.profiler.profile", original, args[1:], kwargs, only="direct")


def _ddp(module: ModuleType) -> None:
    observe(
        module.DistributedDataParallel,
        "__init__",
        before=_sharded("torch.nn.parallel.DistributedDataParallel", 1),
    )


def _fsdp(module: ModuleType) -> None:
    if hasattr(module, "fully_shard"):
        home = sys.modules.get(module.fully_shard.__module__)
        before = _sharded("torch.distributed.fsdp.fully_shard", 0)
        observe(module, "fully_shard", before=before)
        if home is not None and home is not module:
            home.fully_shard = module.fully_shard  # type: ignore[attr-defined]
        older = sys.modules.get("torch.distributed._composable.fsdp")
        if older is not None and hasattr(older, "fully_shard"):
            older.fully_shard = module.fully_shard
    if hasattr(module, "FullyShardedDataParallel"):
        callee = "torch.distributed.fsdp.FullyShardedDataParallel"
        observe(module.FullyShardedDataParallel, "__init__", before=_sharded(callee, 1))


def _sharded(callee: str, skip: int) -> Any:
    def before(original: Any, args: Any, kwargs: Any) -> None:
        target = args[skip] if len(args) > skip else kwargs.get("module")
        sites.record("shard", callee, original, args[skip:], kwargs, detail={"module": type(target).__name__})

    return before


def _checkpoint_wrapper(module: Any) -> None:
    def before(original: Any, args: Any, kwargs: Any) -> None:
        name = getattr(original, "__name__", "checkpoint_wrapper")
        sites.record("checkpoint_enable", f"torch.distributed.algorithms.{name}", original, args, kwargs)

    observe(module, "apply_activation_checkpointing", before=before)
    observe(module, "checkpoint_wrapper", before=before)
