"""Time the training loop spends in logging: trackers, TensorBoard, a trainer's own log, Python's logging, and
what is printed."""

from __future__ import annotations

import io
import sys
from time import perf_counter_ns
from typing import Any

from . import finder
from .core import core, hook
from .hook_calls import count
from .wrapping import observe

_PHASE_WORTH_MS = 20.0
_inside = 0

# module -> (class or "" for the module itself, functions)
_LOGGERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "wandb.sdk.wandb_run": ("Run", ("log",)),
    "torch.utils.tensorboard.writer": (
        "SummaryWriter",
        ("add_scalar", "add_scalars", "add_histogram", "flush"),
    ),
    "tensorboardX.writer": ("SummaryWriter", ("add_scalar", "add_scalars", "add_histogram", "flush")),
    "mlflow.tracking.fluent": ("", ("log_metric", "log_metrics")),
    "transformers.trainer": ("Trainer", ("log",)),
    "accelerate.accelerator": ("Accelerator", ("log",)),
    "logging": ("Handler", ("handle",)),
}


def install_all() -> None:
    for name, (owner, functions) in _LOGGERS.items():
        finder.when_imported(name, _Observe(owner, functions))


class _Observe:
    def __init__(self, owner: str, functions: tuple[str, ...]) -> None:
        self.owner = owner
        self.functions = functions

    def __call__(self, module: Any) -> None:
        target = getattr(module, self.owner, None) if self.owner else module
        for function in self.functions if target is not None else ():
            observe(target, function, before=_begins, after=_ended, failed=_over)


def watch_streams() -> None:
    """Time writes to standard output and error from now on; `print` calls the stream's own methods."""
    for stream in (sys.stdout, sys.stderr):
        if type(stream) is not io.TextIOWrapper:
            continue
        for name in ("write", "flush"):
            if name not in stream.__dict__:
                setattr(stream, name, _timed(getattr(stream, name)))


def _timed(original: Any) -> Any:
    def call(*args: Any) -> Any:
        if _inside or core.rank is None:
            return original(*args)
        start = perf_counter_ns()
        result = original(*args)
        _wrote(perf_counter_ns() - start)
        return result

    return call


@hook
def _wrote(elapsed_ns: int) -> None:
    count("log_ms", elapsed_ns / 1e6)


def _begins(original: Any, args: Any, kwargs: Any) -> None:
    global _inside
    _inside += 1


def _over() -> None:
    global _inside
    _inside = max(0, _inside - 1)


def _ended(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    _over()
    if _inside or core.rank is None:
        return
    elapsed_ms = elapsed_ns / 1e6
    count("log_calls")
    count("log_ms", elapsed_ms)
    if elapsed_ms >= _PHASE_WORTH_MS:
        from .hook_phases import phase

        phase("log", elapsed_ns, tag=False)
