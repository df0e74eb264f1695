"""How much memory checkpointed blocks keep when they are not checkpointed: tried in the job itself.

Only in launches made for that. `settings.memory_probe` says for every step how many checkpointed blocks at
the front of each forward run without checkpointing; the others, losses and gradients stay as they are. Every
step's largest and resting memory are reported, and what autograd kept of the blocks that ran plainly (without
parameters and the blocks' inputs, each storage once). Where nothing is checkpointed, of one layer.
"""

from __future__ import annotations

import ctypes
import functools
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .core import core
from .steps import steps

_largest = {"allocated": 0, "reserved": 0}  # over the whole launch: its own peaks are reset at every step
_calls = 0  # checkpointed calls of the running micro-batch
_most_calls = 0
_depth = 0
_kept: list[int] = []  # bytes of each block that ran plainly in the running step
_host_resets = True
_layers = 0  # equal layers of a model that checkpoints nothing


def install(module: Any) -> None:
    """`module`: torch.utils.checkpoint. Its inner functions are replaced: every way to call it counts."""
    plain = getattr(module, "_checkpoint_without_reentrant_generator", None)
    if plain is not None:

        @functools.wraps(plain)
        def generator(function: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            with _block() as open_:
                if not open_:
                    yield from plain(function, *args, **kwargs)
                    return
                with _counting((args, kwargs)):
                    yield

        module._checkpoint_without_reentrant_generator = generator
    real = getattr(module, "CheckpointFunction", None)
    if real is not None:
        module.CheckpointFunction = _Reentrant(real)


class _Reentrant:
    """Stands for torch's own function class where `checkpoint` calls it."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def apply(self, function: Any, preserve: Any, *args: Any) -> Any:
        with _block() as open_:
            if not open_:
                return self._real.apply(function, preserve, *args)
            with _counting(args):
                return function(*args)


def running() -> int:
    """Blocks of each forward that run plainly in the step that runs now."""
    schedule = core.settings.memory_probe
    return schedule[steps.index] if steps.index < len(schedule) else 0


@contextmanager
def _block() -> Iterator[bool]:
    """One checkpointed call; true where it is to run plainly. Calls inside it are none of their own."""
    global _calls, _depth
    torch: Any = sys.modules["torch"]
    outermost = core.active and not _depth and torch.is_grad_enabled() and not steps._backward_depth
    plainly = outermost and _calls < running()
    _calls += outermost
    _depth += 1
    try:
        yield plainly
    finally:
        _depth -= 1


@contextmanager
def _counting(inputs: Any) -> Iterator[None]:
    """Adds up what autograd saves inside."""
    torch: Any = sys.modules["torch"]
    before = {pointer for tensor in _tensors(inputs) if (pointer := _storage(tensor)[0])}
    found: dict[int, int] = {}
    unread: list[str] = []

    def pack(tensor: Any) -> Any:
        try:
            pointer, size = _storage(tensor)
            if size < 0:
                unread.append(type(tensor).__name__)
            elif pointer and pointer not in before and pointer not in found and pointer not in _parameters():
                found[pointer] = size
        except Exception:
            core.sink.fault("block_memory.pack")
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield
    if not unread:  # a sum without them would promise room that is not there
        _kept.append(sum(found.values()))


def _parameters() -> set[int]:
    """Storages of the parameters as they are now: sharded ones are whole only while their block runs."""
    from . import models

    root = models.root()
    if root is None:
        return set()
    tensors = (getattr(p, "_local_tensor", p) for p in [*root.parameters(), *root.buffers()])
    return {pointer for tensor in tensors if (pointer := _storage(tensor)[0])}


def _storage(tensor: Any) -> tuple[int, int]:
    """(address, bytes) of what lies behind a tensor; (0, -1) where that cannot be read (sparse, say)."""
    try:
        tensor = getattr(tensor, "_local_tensor", tensor)
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    except (AttributeError, RuntimeError, NotImplementedError):
        return 0, -1


def _tensors(value: Any) -> Iterator[Any]:
    torch: Any = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)


def backward_ended() -> None:
    """A micro-batch is over."""
    global _calls, _most_calls
    _most_calls = max(_most_calls, _calls)
    _calls = 0


def step_ended(index: int, micro_batches: int) -> None:
    """Report the step and begin to measure the next one; called inside a hook."""
    global _most_calls
    backward_ended()
    schedule = core.settings.memory_probe
    wanted = schedule[index - 1] if 0 < index <= len(schedule) else 0
    found: dict[str, Any] = {
        "index": index,
        "plain_blocks": min(wanted, _most_calls),
        "blocks": _most_calls,
        "micro_batches": micro_batches,
        **_memory(),
    }
    if _kept and _most_calls:
        found["kept_bytes"] = max(_kept)
    elif _kept:
        found.update(layers=_layers, layer_bytes=max(_kept))
    core.emit("memory_step", found, urgent=True)
    _kept.clear()
    if index == 1 and not _most_calls:
        _watch_a_layer()
    _most_calls = 0
    _reset()


def _watch_a_layer() -> None:
    """Nothing is checkpointed: count what autograd keeps of the first of the model's equal layers."""
    global _layers
    from . import models

    root = models.root()
    parts = list(root.modules()) if root is not None else []
    if any(getattr(part, "_compiled_call_impl", None) or hasattr(part, "_orig_mod") for part in parts):
        return  # a hook would make it compile again
    lists = [part for part in parts if _is_list(part)]
    if not lists:
        return
    layers = max(lists, key=lambda part: sum(p.numel() for p in part.parameters()))
    _layers = len(layers)
    running: list[Any] = []

    def before(layer: Any, args: Any, kwargs: Any) -> None:
        torch: Any = sys.modules["torch"]
        if core.active and torch.is_grad_enabled() and not running:
            running.append(_counting((args, kwargs)))
            running[-1].__enter__()

    def after(layer: Any, args: Any, kwargs: Any, output: Any) -> None:
        if running:
            running.pop().__exit__(None, None, None)

    layers[0].register_forward_pre_hook(before, with_kwargs=True)
    layers[0].register_forward_hook(after, with_kwargs=True, always_call=True)


def _is_list(part: Any) -> bool:
    """A list of two or more layers of one class."""
    torch: Any = sys.modules["torch"]
    kinds = {type(layer) for layer in part} if isinstance(part, torch.nn.ModuleList) else set()
    return len(kinds) == 1 and len(part) > 1


def _device() -> Any:
    torch: Any = sys.modules["torch"]
    return torch if torch.cuda.is_available() and torch.cuda.is_initialized() else None


def _memory() -> dict[str, Any]:
    torch = _device()
    if torch is None:
        return _host_memory()
    torch.cuda.synchronize()
    _remember(torch)
    return {
        "place": "device",
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "resting_bytes": torch.cuda.memory_allocated(),
    }


def _host_memory() -> dict[str, Any]:
    """Resident memory: the peak of this step where the kernel lets it be reset, else of the whole process."""
    peak = _status().get("VmHWM") if _host_resets else None
    _give_back()
    unit = 1 if sys.platform == "darwin" else 1024
    whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {
        "place": "host",
        "peak_bytes": peak or whole,
        "resting_bytes": _status().get("VmRSS"),
        "peak_of_step": peak is not None,
    }


def _give_back() -> None:
    """Freed memory that the C library keeps for later is not at rest."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass  # another C library


def _status() -> dict[str, int]:
    found = {}
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name in ("VmHWM", "VmRSS"):
                    found[name] = int(value.split()[0]) * 1024
    except (OSError, ValueError):
        pass
    return found


def _reset() -> None:
    global _host_resets
    torch = _device()
    if torch is not None:
        torch.cuda.reset_peak_memory_stats()
        return
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        _host_resets = False


def _remember(torch: Any) -> None:
    _largest["allocated"] = max(_largest["allocated"], torch.cuda.max_memory_allocated())
    _largest["reserved"] = max(_largest["reserved"], torch.cuda.max_memory_reserved())


def largest() -> dict[str, int]:
    """Peaks of the launch so far, in spite of the resets; empty where there is no device."""
    torch = _device()
    if torch is None:
        return {}
    _remember(torch)
    return {"peak_allocated_bytes": _largest["allocated"], "peak_reserved_bytes": _largest["reserved"]}
