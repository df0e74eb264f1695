"""What grows from step to step: names of the user's that hold more, memory, and lines that take longer.

Three looks at the names: in the warm-up, at its end, and when the timed steps are over. In between every
step says how long it was outside the model's forward, the backward, the optimizer and the loader, and the
looks at the stack say where.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from time import perf_counter_ns
from typing import Any

from . import compile_watch, kept_values, models, places
from .core import core, hook

_FIRST = 2  # the step after which the names are looked at first
_FEWEST = 4  # steps between the first look and the last
_APART = 2  # steps between two looks
_FEWEST_LOOKS = 3  # at a line in the last third of the steps, for it to be named
_LONGER = 1.5  # the last third against the first

_watched: Any = None  # the model whose forwards are timed
_handles: list[Any] = []
_depth = 0
_begin_ns = 0
forward_ns = 0  # of the running step
_forwards = 0
_forward_begun = False  # since the last backward
_names: list[dict[kept_values.Key, kept_values.Seen]] = []  # at each look
_indices: list[int] = []  # steps that had ended at each look
_timing = False
_first_bytes: int | None = None
_looks: defaultdict[places.Place, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
_done = False


def watch(model: Any) -> None:
    """Called with the module that the loop calls; a later call moves the watch."""
    global _watched, _depth
    if not core.settings.full or model.__dict__.get("_compiled_call_impl") is not None:
        return
    _stop()
    _watched, _depth = id(model), 0
    _handles.append(model.register_forward_pre_hook(_before))
    _handles.append(model.register_forward_hook(_after))


def _stop() -> None:
    if compile_watch.graphs():
        return  # taking a hook off would compile the graphs again
    for handle in _handles:
        handle.remove()
    _handles.clear()


def _before(module: Any, args: Any) -> None:
    if not sys.modules["torch"].compiler.is_compiling() and not _done and id(module) == _watched:
        _begins()


def _after(module: Any, args: Any, output: Any) -> None:
    if not sys.modules["torch"].compiler.is_compiling() and not _done and id(module) == _watched:
        _ends()


@hook
def _begins() -> None:
    global _depth, _begin_ns
    _depth, _begin_ns = 1, perf_counter_ns()
    if not models.in_eval_mode():
        forward_begins()


def forward_begins() -> None:
    """What comes up to the next backward is training: a forward and its loss."""
    global _forward_begun
    _forward_begun = True


def forward_begun() -> bool:
    return _forward_begun or not _forwards


def backward_ended() -> None:
    global _forward_begun
    _forward_begun = False


@hook
def _ends() -> None:
    global _depth, _forwards, forward_ns
    if _depth:
        _depth = 0
        _forwards += 1
        forward_ns += perf_counter_ns() - _begin_ns


def step_ended(index: int) -> None:
    """`index` steps have ended."""
    global forward_ns
    forward_ns = 0
    if not _indices and index >= _FIRST and core.settings.mode == "profile":
        _look(index)
    elif _timing:
        _look_again(index)


def settled(index: int) -> None:
    """The warm-up is over; `index` steps have ended."""
    global _timing
    _timing = True
    _look_again(index)


def _look_again(index: int) -> None:
    if len(_indices) == 1 and index >= _indices[0] + _APART:
        _look(index)


def _look(index: int) -> None:
    global _first_bytes
    _indices.append(index)
    try:
        _names.append(kept_values.look(sys._getframe(1))[0])
        if len(_indices) == 1:
            _first_bytes = _memory_bytes()
    except Exception:
        _names.append({})
        core.sink.fault("growth")


def outside(place: places.Place, weight_ns: int) -> bool:
    """A look at the stack found the training thread at this line of the user's: is that outside the model's
    forward, the backward and the optimizer? Called beside that thread.
    """
    from .steps import steps

    if _depth or steps.in_backward() or steps.in_optimizer():
        return False
    _looks[place][steps.index].append(weight_ns)
    return True


def finish(index: int) -> None:
    """The timed steps are over; `index` steps have ended."""
    global _done
    if _done or not _indices:
        return
    _done = True
    _stop()
    count = index - _indices[0]
    if count < _FEWEST or len(_indices) < 2 or index - _indices[1] < _APART:
        return
    last, held = kept_values.look(sys._getframe(1))
    steps = [_indices[1] - _indices[0], index - _indices[1]]
    kept = kept_values.grown([*_names, last], held, steps)
    _names.clear()
    found: dict[str, Any] = {"steps": count, "kept": [entry.record() for entry in kept[:3]]}
    now = _memory_bytes()
    if now is not None and _first_bytes is not None:
        found["memory_bytes_per_step"] = round((now - _first_bytes) / count, 1)
    for entry in kept[:1]:
        if entry.place is not None:
            places.tell("kept_values", entry.place, entry.name, count)
    line = _growing_line()
    if line is not None:
        place, found["work_ms_per_step"] = line
        code = place[0]
        found["work_function"] = getattr(code, "co_qualname", code.co_name)
        places.tell("growing_work", place, code.co_name, count)
    core.emit("growth", found)


def _growing_line() -> tuple[places.Place, float] | None:
    """The line outside the model whose time grows most from third to third of the steps, and by how much with
    every step. One that grows by little may be a machine that slows down.
    """
    indices = sorted({index for steps in _looks.values() for index in steps})
    size = len(indices) // 3
    if size < 2:
        return None
    thirds = [indices[:size], indices[size:-size], indices[-size:]]
    steps_apart = sum(thirds[2]) / size - sum(thirds[0]) / size
    best, most = None, 0.0
    for place, steps in _looks.items():
        early, middle, late = (sum(sum(steps.get(i, ())) for i in third) / len(third) for third in thirds)
        looks = sum(len(steps.get(i, ())) for i in thirds[2])
        if looks < _FEWEST_LOOKS or not early < middle < late or late < _LONGER * early:
            continue
        if late - early > most:
            best, most = place, late - early
    return None if best is None else (best, round(most / steps_apart / 1e6, 6))


def _memory_bytes() -> int | None:
    """On the device what is allocated, else what the process holds."""
    torch: Any = sys.modules["torch"]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.memory_allocated())
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
