"""Modules without a trained parameter whose inputs need no gradient: they compute the same for the same data.

A hook on all modules, for one step of the warm-up only. The outermost such modules are timed; on a GPU by the
device's clock, which is read later and never waited for.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from time import perf_counter_ns
from typing import Any

from . import compile_watch, models, places
from .core import core, hook

_STEP = 3  # the step after so many have ended is looked at; before it the end of a step is seen late


@dataclasses.dataclass
class _Part:
    module: Any
    place: places.Place | None
    calls: int = 0
    host_ns: int = 0
    output_bytes: int = 0
    events: list[tuple[Any, Any]] = dataclasses.field(default_factory=list)


_handles: list[Any] = []
_done = False
_frozen: dict[int, bool] = {}
_parts: dict[int, _Part] = {}
_open: tuple[Any, int, Any] | None = None  # module, begin, event
_begin_ns = 0
_step_ms = 0.0


def step_ended(index: int, end_ns: int) -> None:
    """`index` steps have ended, the last one at `end_ns`."""
    global _done, _begin_ns, _step_ms
    if _done or not core.settings.full:
        return
    if index == _STEP and not _handles and not compile_watch.graphs():  # a hook would compile them again
        shared = sys.modules["torch"].nn.modules.module
        _begin_ns = end_ns
        _handles.append(shared.register_module_forward_pre_hook(_before))
        _handles.append(shared.register_module_forward_hook(_after, with_kwargs=True))
    elif index > _STEP and _handles:
        for handle in _handles:
            handle.remove()
        _handles.clear()
        _step_ms = (end_ns - _begin_ns) / 1e6
    if index > _STEP and all(end.query() for part in _parts.values() for _, end in part.events):
        _done = True
        if _step_ms:
            _report()
        _parts.clear()
        _frozen.clear()


def _before(module: Any, args: Any) -> None:
    torch: Any = sys.modules["torch"]
    if not torch.compiler.is_compiling():
        _begins(torch, module, sys._getframe(1))


def _after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
    torch: Any = sys.modules["torch"]
    if not torch.compiler.is_compiling():
        _ends(torch, module, (*args, *kwargs.values()), output)


def _is_frozen(module: Any) -> bool:
    known = _frozen.get(id(module))
    if known is None:
        parameters = list(module.parameters())
        known = bool(parameters) and not any(parameter.requires_grad for parameter in parameters)
        _frozen[id(module)] = known
    return known


@hook
def _begins(torch: Any, module: Any, frame: Any) -> None:
    global _open
    from .steps import steps

    if _open is not None and _open[0] is not module:
        return
    if not _is_frozen(module) or steps.in_backward() or models.in_eval_mode():
        return
    if id(module) not in _parts:
        _parts[id(module)] = _Part(module, places.of(frame))
    _open = (module, perf_counter_ns(), _event(torch))


@hook
def _ends(torch: Any, module: Any, inputs: Any, output: Any) -> None:
    global _open
    if _open is None or _open[0] is not module:
        return
    _, begin_ns, event = _open
    _open = None
    if any(value.requires_grad for value in _tensors(torch, inputs)):
        return  # what it is given comes from trained parts
    part = _parts[id(module)]
    part.calls += 1
    part.host_ns += perf_counter_ns() - begin_ns
    # of several outputs (all hidden states, say) one would be kept
    part.output_bytes += max((t.numel() * t.element_size() for t in _tensors(torch, output)), default=0)
    after = _event(torch)
    if event is not None and after is not None:
        part.events.append((event, after))


def _event(torch: Any) -> Any:
    if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _tensors(torch: Any, value: Any, depth: int = 0) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if depth >= 2:
        return []
    inner: Any = value.values() if isinstance(value, Mapping) else value
    if not isinstance(inner, (list, tuple)) and not isinstance(value, Mapping):
        return []
    return [tensor for part in inner for tensor in _tensors(torch, part, depth + 1)]


def _spent_ms(part: _Part) -> float:
    if part.events:
        return sum(begin.elapsed_time(end) for begin, end in part.events)
    return part.host_ns / 1e6


def _report() -> None:
    """The part that takes most of the step."""
    global _open
    _open = None
    found: dict[str, Any] = {"spent_ms": 0.0, "step_ms": round(_step_ms, 4)}
    if _parts:
        part = max(_parts.values(), key=_spent_ms)
        kind = models.class_of(models.unwrap(part.module))
        callee = f"{kind.__module__}.{kind.__qualname__}"
        found.update(
            module=kind.__name__,
            calls=part.calls,
            spent_ms=round(_spent_ms(part), 4),
            on_device=bool(part.events),
            output_bytes=part.output_bytes,
            random=_is_random(part.module),
        )
        if part.place is not None:
            places.tell("frozen_forward", part.place, callee, part.calls)
    core.emit("frozen_parts", found)


def _is_random(module: Any) -> bool:
    """Dropout that is on, or batch statistics: the same input does not give the same output."""
    modules: Any = sys.modules["torch"].nn.modules
    return any(
        part.training
        and (
            (isinstance(part, modules.dropout._DropoutNd) and part.p > 0)
            or isinstance(part, modules.batchnorm._BatchNorm)
        )
        for part in module.modules()
    )
