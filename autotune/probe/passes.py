"""How often a job goes over its data: the loop around the batches' loop.

Read off the source at a step's end, without running any of the user's code.
"""

from __future__ import annotations

import ast
import sys
from types import FrameType

from . import frames, source
from .core import core

_STEP = 4  # the step after which the loops are looked at: by then its end is seen where it happens


def step_ended(index: int) -> None:
    if index != _STEP or not core.settings.full:
        return
    try:
        planned = _planned(sys._getframe(1))
    except Exception:
        core.sink.fault("passes")
        return
    if planned is not None:
        core.emit("passes", {"planned": planned})


def _planned(frame: FrameType | None) -> int | None:
    """Rounds of the loop around the loop that takes batches; None when either is not plain."""
    around: list[tuple[ast.AST, FrameType]] = []
    while frame is not None and len(around) < 2:
        if frames.is_user(frame.f_code.co_filename):
            around += [(loop, frame) for loop in source.loops_at(frame.f_code, frame.f_lineno)]
        frame = frame.f_back
    if len(around) < 2:
        return None
    (inner, _), (outer, where) = around[:2]
    if not isinstance(inner, ast.For) or _range_of(inner.iter) is not None or not isinstance(outer, ast.For):
        return None
    counted = _range_of(outer.iter)
    if counted is None or len(counted.args) > 2:
        return None
    values = [_number(node, where) for node in counted.args]
    if any(value is None for value in values):
        return None
    numbers = [value for value in values if value is not None]
    return max(0, numbers[-1] - (numbers[0] if len(numbers) == 2 else 0))


def _range_of(node: ast.AST) -> ast.Call | None:
    """`range(...)`, also inside a progress bar, or `trange(...)`."""
    if not isinstance(node, ast.Call):
        return None
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in ("range", "trange"):
        return node
    return _range_of(node.args[0]) if node.args else None


def _number(node: ast.AST, frame: FrameType) -> int | None:
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "int" and len(node.args) == 1:
        node = node.args[0]
    value = node.value if isinstance(node, ast.Constant) else _value(node, frame)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _value(node: ast.AST, frame: FrameType) -> object:
    """Of a plain name or a chain of attributes."""
    if isinstance(node, ast.Name):
        local = source.values(frame)
        return local[node.id] if node.id in local else frame.f_globals.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, frame), "__dict__", {}).get(node.attr)
    return None
