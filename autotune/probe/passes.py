"""How often a job goes over its data: the loop around the batches' loop, and whether data is drawn anew.

Read off the source at a step's end, without running any of the user's code.
"""

from __future__ import annotations

import ast
import sys
from types import CodeType, FrameType
from typing import Any

from . import frames, source
from .core import core

_STEP = 4  # the step after which the loops are looked at: by then its end is seen where it happens
_RANDOM_NAMES = {
    "rand", "randn", "randint", "randrange", "randperm", "random", "uniform", "choice", "choices", "sample",
    "normal", "permutation", "shuffle", "default_rng", "bernoulli",
}  # fmt: skip
_RANDOM_CLASSES = ("Random", "Augment", "Jitter", "Mixup", "MixUp", "CutMix", "Cutout", "SpecAug")
_MOST_OBJECTS = 200


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


def drawn_anew(loader: Any) -> bool:
    """Whether reading an example or making a batch seems to draw random numbers: the same row differs."""
    dataset, collate = getattr(loader, "dataset", None), getattr(loader, "collate_fn", None)
    for owner, name in ((dataset, "__getitem__"), (dataset, "__getitems__"), (collate, "__call__")):
        function = getattr(type(owner), name, None)
        if _draws(getattr(function, "__code__", None)):
            return True
    if _draws(getattr(collate, "__code__", None)):
        return True
    return any(_is_random(thing) for thing in _held(dataset))


def _is_random(thing: Any) -> bool:
    kind = type(thing)
    if any(word in kind.__name__ for word in _RANDOM_CLASSES) or _draws(getattr(thing, "__code__", None)):
        return True
    call = getattr(kind, "__call__", None)  # noqa: B004 - the code of a transform's class
    return _draws(getattr(call, "__code__", None)) or _draws(
        getattr(getattr(kind, "forward", None), "__code__", None)
    )


def _draws(code: Any) -> bool:
    if not isinstance(code, CodeType) or not frames.is_user(code.co_filename):
        return False
    if _RANDOM_NAMES & set(code.co_names):
        return True
    return any(_draws(constant) for constant in code.co_consts)


def _held(dataset: Any) -> list[Any]:
    """What the data set holds in its attributes, three levels deep: transforms and what they are made of."""
    found: list[Any] = []
    level = [dataset]
    for _ in range(4):
        found += level
        following: list[Any] = []
        for thing in level:
            inner = list(getattr(thing, "__dict__", {}).values()) if not isinstance(thing, type) else []
            for value in inner:
                if isinstance(value, dict):
                    value = list(value.values())
                following += list(value)[:20] if isinstance(value, (list, tuple)) else [value]
        level = following[: _MOST_OBJECTS - len(found)]
        if not level:
            break
    return found[1:]
