"""Modules that one step of the warm-up calls many times: a position or an example at a time.

A hook on all modules, for one step only. Calls without gradients (generation) and those of a recomputation
inside the backward do not count.
"""

from __future__ import annotations

import sys
from time import perf_counter_ns
from typing import Any

from . import compile_watch, models, places
from .core import core, hook

_STEP = 3  # the step after so many have ended is looked at; before it the end of a step is seen late
_FEWEST = 16  # calls per backward that are worth a word
_CELLS = ("LSTMCell", "GRUCell", "RNNCell")

_handles: list[Any] = []
_done = False
_calls: dict[int, list[Any]] = {}  # module id -> [module, calls, ns, place]
_stack: list[tuple[int, int]] = []
_begin_ns = 0


def step_ended(index: int, backwards: int, end_ns: int) -> None:
    """`index` steps have ended, the last one at `end_ns` with so many backwards."""
    global _done, _begin_ns
    if _done or not core.settings.full:
        return
    if index == _STEP and not _handles and not compile_watch.graphs():  # a hook would compile them again
        torch: Any = sys.modules["torch"]
        shared = torch.nn.modules.module
        _begin_ns = end_ns
        _handles.append(shared.register_module_forward_pre_hook(_before))
        _handles.append(shared.register_module_forward_hook(_after))
    elif index > _STEP and _handles:
        _done = True
        for handle in _handles:
            handle.remove()
        _handles.clear()
        if _calls:
            _report(max(1, backwards), end_ns - _begin_ns)
        _calls.clear()


def _before(module: Any, args: Any) -> None:
    torch: Any = sys.modules["torch"]
    if not torch.compiler.is_compiling():
        _begins(torch, module, sys._getframe(1))


def _after(module: Any, args: Any, output: Any) -> None:
    if not sys.modules["torch"].compiler.is_compiling():
        _ends(module)


@hook
def _begins(torch: Any, module: Any, frame: Any) -> None:
    from .steps import steps

    if not torch.is_grad_enabled() or steps.in_backward() or models.in_eval_mode():
        return
    known = _calls.get(id(module))
    if known is None:
        known = _calls[id(module)] = [module, 0, 0, None]
    known[1] += 1
    if known[1] == _FEWEST:
        known[3] = places.of(frame)
    _stack.append((id(module), perf_counter_ns()))


@hook
def _ends(module: Any) -> None:
    if _stack and _stack[-1][0] == id(module):
        key, begin_ns = _stack.pop()
        _calls[key][2] += perf_counter_ns() - begin_ns


def _report(backwards: int, step_ns: int) -> None:
    """The outermost module among those called often: its time holds that of its parts."""
    _stack.clear()
    often = [
        entry
        for entry in _calls.values()
        if entry[1] >= _FEWEST * backwards and step_ns and any(True for _ in entry[0].parameters())
    ]
    found: dict[str, Any] = {"calls_per_backward": 0.0, "frac": 0.0}
    if often:
        module, calls, spent_ns, place = max(often, key=lambda entry: entry[2])
        kind = type(module)
        found = {
            "module": kind.__name__,
            "callee": f"{kind.__module__}.{kind.__qualname__}",
            "cell": kind.__name__ in _CELLS and kind.__module__.startswith("torch."),
            "calls_per_backward": round(calls / backwards, 2),
            "frac": round(min(1.0, spent_ns / step_ns), 4),
            "call_us": round(spent_ns / calls / 1e3, 2),
        }
        if place is not None:
            places.tell("repeated_call", place, found["callee"], calls)
    core.emit("repeated_calls", found)
