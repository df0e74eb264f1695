"""Device values read by user code: which line, how often, how long the CPU waited there.

What a transformers Trainer reads of the device in order to log it is counted apart.
"""

from __future__ import annotations

import functools
import inspect
import sys
from time import perf_counter_ns
from typing import Any

from . import finder, frames, sites
from .core import core, hook
from .hook_calls import count
from .steps import steps
from .wrapping import _MARK, observe

_METHODS = (
    "item",
    "tolist",
    "cpu",
    "numpy",
    "__float__",
    "__int__",
    "__bool__",
    "__index__",
    "__format__",
    "__repr__",
)
# what moves whole batches to the device on behalf of a loop: (module, class or "", function)
_LIBRARY_MOVES = (
    ("accelerate.utils.operations", "", "send_to_device"),
    ("transformers.tokenization_utils_base", "BatchEncoding", "to"),
    ("transformers.trainer", "Trainer", "_prepare_inputs"),
    ("lightning.fabric.utilities.apply_func", "", "move_data_to_device"),
    ("lightning_fabric.utilities.apply_func", "", "move_data_to_device"),
)
_moving = 0
reads = 0
wait_ns = 0
_inside = False
_trainer_logs: Any = None  # code of the Trainer's method that reads the loss and the norm it logs


def install(torch: Any) -> None:
    finder.when_imported("transformers.trainer", _trainer)
    for name in _METHODS:
        original = getattr(torch.Tensor, name, None)
        if original is not None and not getattr(original, _MARK, False):
            setattr(torch.Tensor, name, _reader(torch, name, original))
    if torch.cuda.is_available():
        for name in ("to", "cuda"):
            setattr(torch.Tensor, name, _mover(torch, name, getattr(torch.Tensor, name)))
        observe(torch.cuda, "synchronize", after=_synchronised)
        for module, owner, name in _LIBRARY_MOVES:
            finder.when_imported(module, _Movers(owner, name))


def _trainer(module: Any) -> None:
    global _trainer_logs
    method = getattr(module.Trainer, "_maybe_log_save_evaluate", None)
    _trainer_logs = getattr(inspect.unwrap(method), "__code__", None) if method is not None else None


class _Movers:
    def __init__(self, owner: str, name: str) -> None:
        self.owner = owner
        self.name = name

    def __call__(self, module: Any) -> None:
        target = getattr(module, self.owner, None) if self.owner else module
        if target is not None:
            observe(target, self.name, before=_move_begins, after=_move_ended, failed=_move_over)


def _move_begins(original: Any, args: Any, kwargs: Any) -> None:
    global _moving
    _moving += 1


def _move_over() -> None:
    global _moving
    _moving = max(0, _moving - 1)


def _move_ended(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    _move_over()
    if not _moving and core.rank is not None:
        count("to_device_ms", elapsed_ns / 1e6)


def _reader(torch: Any, name: str, original: Any) -> Any:
    compiling = torch.compiler.is_compiling
    is_user = frames.is_user
    here = sys._getframe

    @functools.wraps(original)
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _inside or compiling() or core.rank is None:
            return original(self, *args, **kwargs)
        code = here(1).f_code
        if is_user(code.co_filename):
            return _timed(name, original, self, args, kwargs, here(1))
        if code is _trainer_logs:
            return _timed_log(original, self, args, kwargs)
        return original(self, *args, **kwargs)

    setattr(read, _MARK, True)
    return read


def _mover(torch: Any, name: str, original: Any) -> Any:
    """`.to` and `.cuda` in user code: a copy from a device waits for it, one to a device is a transfer."""
    compiling = torch.compiler.is_compiling
    is_user = frames.is_user
    here = sys._getframe

    @functools.wraps(original)
    def move(self: Any, *args: Any, **kwargs: Any) -> Any:
        if core.rank is None or compiling() or not is_user(here(1).f_code.co_filename):
            return original(self, *args, **kwargs)
        start = perf_counter_ns()
        result = original(self, *args, **kwargs)
        if result is not self:
            _moved(name, self, result, kwargs, here(1), perf_counter_ns() - start)
        return result

    setattr(move, _MARK, True)
    return move


@hook
def _moved(name: str, before: Any, after: Any, kwargs: Any, frame: Any, elapsed_ns: int) -> None:
    source, target = before.device.type, after.device.type
    if source == target:
        return
    if target == "cpu":
        _note(name, before, frame, elapsed_ns)
        return
    if not _moving:
        count("to_device_ms", elapsed_ns / 1e6)
    detail = {
        "device": target,
        "elements": before.numel(),
        "pinned": before.is_pinned(),
        "non_blocking": bool(kwargs.get("non_blocking", False)),
    }
    sites.record("to_device", f"torch.Tensor.{name}", frame=frame, detail=detail, elapsed_ns=elapsed_ns)


def _synchronised(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    global reads, wait_ns
    if core.rank is None:
        return
    seen = sites.record(
        "device_read",
        "torch.cuda.synchronize",
        detail={"device": "cuda"},
        only="direct",
        elapsed_ns=elapsed_ns,
    )
    if seen is not None:
        reads += 1
        wait_ns += elapsed_ns


def _timed(name: str, original: Any, tensor: Any, args: Any, kwargs: Any, frame: Any) -> Any:
    """The read itself with a clock around it; reads it makes on its own (format -> item) are part of it."""
    global _inside
    _inside = True
    start = perf_counter_ns()
    try:
        return original(tensor, *args, **kwargs)
    finally:
        _inside = False
        _note(name, tensor, frame, perf_counter_ns() - start)


def _timed_log(original: Any, tensor: Any, args: Any, kwargs: Any) -> Any:
    start = perf_counter_ns()
    try:
        return original(tensor, *args, **kwargs)
    finally:
        count("trainer_log_reads")
        count("trainer_log_wait_ms", (perf_counter_ns() - start) / 1e6)


@hook
def _note(name: str, tensor: Any, frame: Any, elapsed_ns: int) -> None:
    global reads, wait_ns
    device = tensor.device.type
    if device == "cpu" and (name in ("cpu", "numpy") or sys.modules["torch"].cuda.is_initialized()):
        return  # nothing waits for a device here
    reads += 1
    wait_ns += elapsed_ns
    if steps.beside():
        count("loop_reads")
    sites.record(
        "device_read",
        f"torch.Tensor.{name}",
        frame=frame,
        detail={"device": device, "elements": tensor.numel()},
        elapsed_ns=elapsed_ns,
    )
