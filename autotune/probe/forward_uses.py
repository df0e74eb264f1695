"""Forwards of the trained model that serve nothing: their graph is never used, or they repeat a prefix.

In a few steps of the warm-up every call of the outermost model is timed. A call that records a graph of which
no output ever gets a gradient was run for a number only. Calls without gradients whose rows grow by one value
each, without a cache, compute the whole prefix again for every new token.
"""

from __future__ import annotations

import dataclasses
import sys
import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from time import perf_counter_ns
from typing import Any

from . import compile_watch, idle_outputs, models, places
from .core import core, hook

_FROM, _STEPS = 1, 4  # steps that have ended before the first one that is looked at, and how many
_FEWEST_GROWING = 4
_FRAMES = 12  # callers that are looked at
_GENERATION = "transformers.generation.utils"
_CACHES = ("past_key_values", "past_key_value", "cache_params", "past", "cache", "kv_cache")


@dataclasses.dataclass
class _Call:
    inputs: tuple[Any, ...]
    begin_ns: int
    place: places.Place | None
    graph: bool
    elapsed_ns: int = 0
    outputs: int = 0  # tensors with a graph
    used: bool = False
    copies: Any = None  # ids of a call without a graph
    generate: bool = False  # transformers' generate makes the call


_watched: Any = None  # weak reference; copies of the module inherit the hooks and are ignored
_looking = False
_handles: list[Any] = []
_calls: list[_Call] = []
_open: list[_Call] = []
_cached_ns: list[int] = []  # begins of calls without gradients that were given a cache
_uncached: list[_Call] = []
_ends_ns: list[int] = []  # of the steps; an end may be told only when the next step has begun


def watch(model: Any) -> None:
    """Called with the module that the loop calls; a later call moves the watch."""
    global _watched, _looking
    _stop()
    _watched, _looking = weakref.ref(model), True
    if not core.settings.full or model.__dict__.get("_compiled_call_impl") is not None:
        return
    _handles.append(model.register_forward_pre_hook(_before, with_kwargs=True))
    _handles.append(model.register_forward_hook(_after, with_kwargs=True))


def _stop() -> None:
    global _looking
    _looking = False
    if compile_watch.graphs():
        return  # the hooks are in the graph as nothing; taking them off would compile it again
    for handle in _handles:
        handle.remove()
    _handles.clear()


def _before(module: Any, args: Any, kwargs: Any) -> None:
    torch: Any = sys.modules["torch"]
    if not torch.compiler.is_compiling() and _looking and _watched is not None and module is _watched():
        _begins(torch, args, kwargs, sys._getframe(1))


def _after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
    torch: Any = sys.modules["torch"]
    if not torch.compiler.is_compiling() and _looking and _watched is not None and module is _watched():
        _ends(torch, output)


@hook
def _begins(torch: Any, args: Any, kwargs: Any, frame: Any) -> None:
    from .steps import steps

    if not steps.begin_ns:
        return
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    call = _Call(
        inputs=tuple(_key(tensor) for tensor in tensors),
        begin_ns=perf_counter_ns(),
        place=places.of(frame),
        graph=torch.is_grad_enabled(),
    )
    if not call.graph and any(kwargs.get(name) is not None for name in _CACHES):
        _cached_ns.append(call.begin_ns)
    elif not call.graph:
        call.copies = next((t for t in tensors if t.dim() == 2 and not t.is_floating_point()), None)
        call.generate = _below_generate(frame)
    _open.append(call)


def _below_generate(frame: Any) -> bool:
    for _ in range(_FRAMES):
        if frame is None:
            return False
        if frame.f_globals.get("__name__") == _GENERATION:
            return True
        frame = frame.f_back
    return False


@hook
def _ends(torch: Any, output: Any) -> None:
    if not _open:
        return
    call = _open.pop()
    call.elapsed_ns = perf_counter_ns() - call.begin_ns
    if call.graph:
        for tensor in _tensors(torch, output):
            if tensor.requires_grad:
                call.outputs += 1
                tensor.register_hook(_Mark(call))
        if call.outputs:
            _calls.append(call)
    elif call.copies is not None:
        _grows(torch, call)


class _Mark:
    def __init__(self, call: _Call) -> None:
        self.call = call

    def __call__(self, gradient: Any) -> None:
        self.call.used = True
        _looked(gradient)


@hook
def _looked(gradient: Any) -> None:
    idle_outputs.look(gradient)


def _tensors(torch: Any, value: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 3:
        if isinstance(value, Mapping):
            parts: Any = value.values()
        elif isinstance(value, (list, tuple)):
            parts = value
        else:
            parts = vars(value).values() if dataclasses.is_dataclass(value) else ()
        for part in parts:
            yield from _tensors(torch, part, depth + 1)


_last: Any = None  # ids of the last call without gradients
_row: list[_Call] = []


def _grows(torch: Any, call: _Call) -> None:
    """A call without gradients and without a cache: does it go on where the last one was?"""
    global _last
    now = call.copies
    call.copies = None
    grown = (
        _last is not None
        and now.shape[0] == _last.shape[0]
        and now.shape[1] == _last.shape[1] + 1
        and (now.device.type != "cpu" or bool(torch.equal(now[:, :-1], _last)))
    )
    if not grown:
        _close_row()
    _row.append(call)
    _last = now


def _close_row() -> None:
    global _last
    if len(_row) > _FEWEST_GROWING:
        _uncached.extend(_row[1:])  # the first call reads the prompt
    _row.clear()
    _last = None


def step_ended(index: int, end_ns: int) -> None:
    """`index` steps have ended, the last one at `end_ns`."""
    if not _looking or not _handles or index < _FROM:
        return
    _ends_ns.append(end_ns)
    if len(_ends_ns) > _STEPS:
        _stop()
        try:
            _report()
        except Exception:
            core.sink.fault("forward_uses")


def _key(tensor: Any) -> tuple[Any, ...]:
    """The same for a tensor, and for an equal slice of it that is made again."""
    try:
        return (tensor.data_ptr(), tuple(tensor.shape), tensor._version)
    except RuntimeError:  # a tensor without storage of its own
        return (id(tensor), tuple(tensor.shape))


def _tell(kind: str, calls: list[_Call]) -> None:
    """One site: the place most of these calls came from."""
    at = Counter(call.place for call in calls if call.place is not None)
    model = _watched() if _watched is not None else None
    if at and model is not None:
        place, count = at.most_common(1)[0]
        made = models.class_of(models.unwrap(model))
        places.tell(kind, place, f"{made.__module__}.{made.__qualname__}", count)


def _report() -> None:
    _close_row()
    steps, begin_ns, end_ns = len(_ends_ns) - 1, _ends_ns[0], _ends_ns[-1]
    if end_ns <= begin_ns:
        return
    uncached = [call for call in _uncached if begin_ns <= call.begin_ns < end_ns]
    _tell("uncached_forward", uncached)
    found: dict[str, Any] = {
        "steps": steps,
        "uncached_in_generate": bool(uncached) and all(call.generate for call in uncached),
        "uncached_ms_per_step": _ms(uncached, steps),
        "cached_calls_per_step": round(sum(begin_ns <= at < end_ns for at in _cached_ns) / steps, 2),
        "uncached_calls_per_step": round(len(uncached) / steps, 2),
    }
    # what the last step left may still get its gradient: a loop that trains one batch behind
    end_ns = _ends_ns[-2]
    settled = [call for call in _calls if begin_ns <= call.begin_ns < end_ns]
    if settled:
        unused = [call for call in settled if not call.used]
        _tell("unused_forward", unused)
        trained = [(_step(call), set(call.inputs)) for call in settled if call.used]
        # a trainer may give the call that is trained on more: a count of tokens, say
        repeats = [
            call
            for call in unused
            if any(step == _step(call) and set(call.inputs) <= inputs for step, inputs in trained)
        ]
        found["unused_ms_per_step"] = _ms(unused, steps - 1)
        found["unused_calls_per_step"] = round(len(unused) / (steps - 1), 2)
        found["repeated"] = bool(repeats) and len(repeats) == len(unused)
    found.update(idle_outputs.found())
    _calls.clear()
    _uncached.clear()
    _cached_ns.clear()
    core.emit("forward_uses", found)


def _ms(calls: list[_Call], steps: int) -> float:
    return round(sum(call.elapsed_ns for call in calls) / steps / 1e6, 4)


def _step(call: _Call) -> int:
    return bisect_right(_ends_ns, call.begin_ns)
