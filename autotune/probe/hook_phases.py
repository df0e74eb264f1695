"""What interrupts training: saves, evaluations of a trainer, garbage collection, logging."""

from __future__ import annotations

import gc
from time import perf_counter_ns
from typing import Any

from . import evaluation, finder, sites
from .core import core, hook
from .hook_calls import count
from .wrapping import observe

_GC_WORTH_MS = 5.0
_MOST_PHASES = 5000  # of one kind; then only long ones, so that a run of days stays readable
_ALWAYS_NS = 1_000_000_000
_written: dict[str, int] = {}
spent_ms: dict[str, float] = {}  # in all phases of a kind, also those that are not written
_saving = 0
_gc_start = 0
_in_collect = False


def install(torch: Any) -> None:
    _observe_save(torch, "save", "torch.save", False)
    finder.when_imported("torch.distributed.checkpoint.state_dict_saver", _distributed)
    finder.when_imported("safetensors.torch", _safetensors)
    finder.when_imported("transformers.modeling_utils", _transformers)
    finder.when_imported("transformers.trainer", _trainer)
    finder.when_imported("accelerate.accelerator", _accelerate)
    gc.callbacks.append(_collector)
    observe(gc, "collect", before=_collect)


def _save_begins(original: Any, args: Any, kwargs: Any) -> None:
    global _saving
    _saving += 1


def _save_over() -> None:
    global _saving
    _saving = max(0, _saving - 1)


def _save(callee: str, method: bool = False) -> Any:
    def after(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
        _save_over()
        if _saving:
            return
        phase("checkpoint", elapsed_ns)
        if core.settings.full:
            sites.record(
                "save", callee, original, args[1:] if method else args, kwargs, elapsed_ns=elapsed_ns
            )

    return after


def phase(kind: str, elapsed_ns: int, tag: bool = True) -> None:
    """Something that ended now and took so long; `tag`: mark the running step with it."""
    from .steps import steps

    if tag:
        steps.tags.add(kind)
    if kind not in ("log", "gc"):
        steps.not_beside(elapsed_ns)
    spent_ms[kind] = spent_ms.get(kind, 0.0) + elapsed_ns / 1e6
    _written[kind] = _written.get(kind, 0) + 1
    if _written[kind] > _MOST_PHASES and elapsed_ns < _ALWAYS_NS:
        return
    end = perf_counter_ns()
    core.emit(
        "phase",
        {"kind": kind, "start_s": (end - elapsed_ns) / 1e9, "duration_ms": round(elapsed_ns / 1e6, 3)},
    )


def _observe_save(owner: Any, name: str, callee: str, method: bool) -> None:
    observe(owner, name, before=_save_begins, after=_save(callee, method), failed=_save_over)


def _distributed(module: Any) -> None:
    for name in ("save", "async_save"):
        _observe_save(module, name, f"torch.distributed.checkpoint.{name}", False)
    package = __import__("sys").modules.get("torch.distributed.checkpoint")
    for name in ("save", "async_save"):
        if package is not None and hasattr(package, name):
            setattr(package, name, getattr(module, name))


def _safetensors(module: Any) -> None:
    _observe_save(module, "save_file", "safetensors.torch.save_file", False)


def _transformers(module: Any) -> None:
    _observe_save(
        module.PreTrainedModel, "save_pretrained", "transformers.PreTrainedModel.save_pretrained", True
    )


def _trainer(module: Any) -> None:
    _observe_save(module.Trainer, "_save_checkpoint", "transformers.Trainer._save_checkpoint", True)
    for name in ("evaluate", "predict"):
        observe(
            module.Trainer, name, before=_evaluation_begins, after=_evaluation_ends, failed=evaluation.leave
        )


def _accelerate(module: Any) -> None:
    for name in ("save_state", "save_model"):
        if hasattr(module.Accelerator, name):
            _observe_save(module.Accelerator, name, f"accelerate.Accelerator.{name}", True)


def _evaluation_begins(original: Any, args: Any, kwargs: Any) -> None:
    evaluation.enter()


def _evaluation_ends(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    evaluation.leave()


def _collect(original: Any, args: Any, kwargs: Any) -> None:
    count("gc_collect")
    if core.settings.full:
        sites.record("gc_collect", "gc.collect", original, args, kwargs, only="direct")


def _collector(phase: str, info: dict[str, Any]) -> None:
    """gc's own callback: pauses of the training thread."""
    global _gc_start
    if phase == "start":
        _gc_start = perf_counter_ns()
        return
    if _gc_start and core.active and core.rank is not None:
        _paused(perf_counter_ns() - _gc_start)


@hook
def _paused(elapsed_ns: int) -> None:
    elapsed_ms = elapsed_ns / 1e6
    count("gc_ms", elapsed_ms)
    from .steps import steps

    steps.not_beside(elapsed_ns)
    if elapsed_ms >= _GC_WORTH_MS:
        phase("gc", elapsed_ns)
