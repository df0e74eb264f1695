"""Whether a value of now holds what it held at an earlier look, and is not another one of the same name.

Remembered are weak references, numbers of graph nodes and single numbers; nothing of the user's is held.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from itertools import islice
from typing import Any

Mark = tuple[Any, ...]  # of one value at one look; () tells nothing

_LOOKED_AT = 32  # oldest values of one container
_LONGEST = 200  # characters of a text that is remembered
_MOST_NODES = 20_000
_DEPTH = 2


class _Object:
    """A weak reference that is equal to one of the same living object only; a tensor's compares values."""

    __slots__ = ("number", "ref")

    def __init__(self, value: Any) -> None:
        self.ref, self.number = weakref.ref(value), id(value)

    def __eq__(self, other: object) -> bool:
        mine = self.ref()
        return isinstance(other, _Object) and mine is not None and other.ref() is mine

    def __hash__(self) -> int:
        return self.number


def mark(value: Any) -> Mark:
    if isinstance(value, sys.modules["torch"].Tensor):
        return _node(value.grad_fn)
    if isinstance(value, (list, deque)):
        return tuple(_one(item) for item in islice(value, _LOOKED_AT))
    if isinstance(value, dict):
        return tuple((_one(key), _one(item)) for key, item in islice(value.items(), _LOOKED_AT))
    return ()


def continues(before: Mark, value: Any) -> bool:
    """Does the value hold what was marked? Never said of a mark that another value could have by chance."""
    if not before:
        return False
    if isinstance(value, sys.modules["torch"].Tensor):
        return _in_graph(before, value.grad_fn)
    if mark(value)[: len(before)] != before:
        return False
    return len(set(before)) > 1 or isinstance(before[0], _Object)


def _node(node: Any) -> Mark:
    number = getattr(node, "_sequence_nr", None)
    return () if number is None else (type(node).__name__, int(number()))


def _in_graph(wanted: Mark, root: Any) -> bool:
    seen: set[Any] = set()
    waiting = deque([root])
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.popleft()
        if node is None or node in seen:
            continue
        if _node(node) == wanted:
            return True
        seen.add(node)
        waiting += [child for child, _ in node.next_functions]
    return False


def _one(value: Any, depth: int = 0) -> Any:
    if value is None or isinstance(value, (bool, int, float, complex)):
        return id(value), repr(value)
    if isinstance(value, (str, bytes)):
        return id(value), value[:_LONGEST]
    if isinstance(value, (list, tuple)) and depth < _DEPTH:
        return tuple(_one(item, depth + 1) for item in value[:4])
    try:
        return _Object(value)
    except TypeError:
        return object()  # equal to nothing
