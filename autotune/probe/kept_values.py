"""Names of the user's that hold more in every step: lists, dictionaries, tensors, sums with their graph.

Looked at are the locals and globals of the user's running functions and the attributes of objects of the
user's classes. Nothing of the user's is kept or changed; a running sum counts by the nodes of its graph.
"""

from __future__ import annotations

import dataclasses
import gc
import sys
from collections import deque
from itertools import compress
from types import FrameType
from typing import Any

from . import frames, growing_lines, lineage, places, source
from .core import core

Held = dict["Key", tuple[Any, Any]]  # value, and the code or class that has the name
Key = tuple[str, str, str, int]  # file, function or class, name, first line or object
Seen = tuple[int, int, lineage.Mark]  # values, nodes of its graph, what it held
_MOST_INSTANCES = 50  # objects of one class; more are data, not state
_MOST_KEYS = 50
_MOST_NODES = 20_000
_LOOKED_AT = 32  # values of one container for its bytes
_MORE_NODES = 1.3
_MOSTLY = 0.8
_LIKE = 0.5  # each part of the steps adds at least so much of what all of them add


@dataclasses.dataclass
class Kept:
    name: str
    function: str
    place: places.Place | None
    items_per_step: float
    bytes_per_step: float | None
    graph: bool

    def record(self) -> dict[str, Any]:
        fields = dataclasses.asdict(dataclasses.replace(self, place=None))
        del fields["place"]
        return fields


def look(frame: FrameType | None) -> tuple[dict[Key, Seen], Held]:
    """Sizes by name, and the values themselves with the code or class that has the name."""
    held: Held = {}
    modules: set[int] = set()
    while frame is not None:
        code = frame.f_code
        if frames.is_user(code.co_filename):
            path = frames.absolute(code.co_filename)
            if code.co_name != "<module>":
                _take(held, (path, code.co_name, code.co_firstlineno), code, source.values(frame))
            if id(frame.f_globals) not in modules:
                modules.add(id(frame.f_globals))
                _take(held, (path, "<module>", 0), code, frame.f_globals)
        frame = frame.f_back
    for instance in _instances():
        kind = type(instance)
        path = str(getattr(sys.modules.get(kind.__module__), "__file__", ""))
        _take(held, (path, kind.__qualname__, id(instance)), kind, vars(instance))
    return {key: _seen(value) for key, (value, _) in held.items()}, held


def _take(held: Held, owner: tuple[str, str, int], at: Any, values: dict[str, Any]) -> None:
    path, function, number = owner
    for name, value in list(values.items()):
        if not isinstance(name, str) or name.startswith("__"):
            continue
        if issubclass(type(value), dict) and 0 < len(value) <= _MOST_KEYS:
            for key, inner in list(value.items()):
                if isinstance(key, str) and _holds(inner):
                    held[path, function, f"{name}[{key!r}]", number] = (inner, at)
        if _holds(value):
            held[path, function, name, number] = (value, at)


def _holds(value: Any) -> bool:
    kind = type(value)  # asking the value itself would run a lazy proxy's own code
    if issubclass(kind, deque) and value.maxlen is not None:
        return False
    return issubclass(kind, (list, deque, dict)) or _is_tensor(value) or _is_array(value)


def _is_tensor(value: Any) -> bool:
    kind = type(value)
    return issubclass(kind, sys.modules["torch"].Tensor) and kind.__name__ != "Parameter"


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def _instances() -> list[Any]:
    """Objects of the user's classes of which there are few.

    There are hundreds of thousands of objects: what is done for every one is left to built-in functions.
    """
    user: dict[int, list[Any]] = {id(kind): [] for kind in _classes() if _is_users(kind)}
    if not user:
        return []
    things = gc.get_objects()
    # by identity: not every class can be hashed
    for thing in compress(things, map(user.__contains__, map(id, map(type, things)))):
        found = user[id(type(thing))]
        if len(found) <= _MOST_INSTANCES:
            found.append(thing)
    return [
        thing
        for found in user.values()
        if len(found) <= _MOST_INSTANCES
        for thing in found
        if isinstance(getattr(thing, "__dict__", None), dict)
    ]


def _classes() -> list[type]:
    """Every class there is."""
    found: dict[int, type] = {id(object): object}
    left: list[type] = [object]
    while left:
        for kind in type.__subclasses__(left.pop()):
            if id(kind) not in found:
                found[id(kind)] = kind
                left.append(kind)
    return list(found.values())


def _is_users(kind: type) -> bool:
    module = sys.modules.get(getattr(kind, "__module__", "") or "")
    path = getattr(module, "__file__", None)
    return isinstance(path, str) and frames.is_user(path)


def _seen(value: Any) -> Seen:
    try:
        held = lineage.mark(value)
        if _is_tensor(value):
            return int(value.numel()), _nodes(value.grad_fn) if value.numel() == 1 else 0, held
        return int(value.size) if _is_array(value) else len(value), 0, held
    except Exception:  # a tensor without storage, an object whose length fails
        core.sink.fault("kept_values")
        return 0, 0, ()


def _nodes(root: Any) -> int:
    seen: set[Any] = set()
    stack = [root]
    while stack and len(seen) < _MOST_NODES:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        stack += [child for child, _ in node.next_functions]
    return len(seen)


def grown(looks: list[dict[Key, Seen]], held: Held, steps: list[int]) -> list[Kept]:
    """What holds at least one value more for every step, between each two looks alike, and still what it held
    before; with a graph first, then by bytes.
    """
    found = []
    for key, (value, at) in held.items():
        if any(key not in look for look in looks):
            continue
        path, function, name, _ = key
        seen = [look[key] for look in looks]
        count, nodes = _more([size for size, _, _ in seen], steps), _more([n for _, n, _ in seen], steps)
        chain = nodes and seen[-1][1] >= _MORE_NODES * seen[0][1] > 0
        if not (count or chain) or not _is_the_same(seen, key, value, at):
            continue
        place = growing_lines.growing(path, name, at)
        if place is None or growing_lines.bounded(path, name, at):
            continue
        more = (seen[-1][0] - seen[0][0]) / sum(steps)
        width = _width(value)
        found.append(
            Kept(
                name,
                function if function != "<module>" else "",
                place,
                round(more, 2),
                None if width is None else round(more * width, 1),
                chain or _has_graph(value),
            )
        )
    return sorted(found, key=lambda kept: (not kept.graph, -(kept.bytes_per_step or 0.0)))


def _more(sizes: list[int], steps: list[int]) -> bool:
    """At least one for every step, and about as many per step between each two looks."""
    whole = sizes[-1] - sizes[0]
    if whole < _MOSTLY * sum(steps):  # the end of a step is not always seen at the same line
        return False
    parts = zip(sizes, sizes[1:], steps, strict=False)
    return all(after - before >= _LIKE * whole * count / sum(steps) for before, after, count in parts)


def _is_the_same(seen: list[Seen], key: Key, value: Any, at: Any) -> bool:
    """Not a value of the newest step that happens to be larger: a batch that is longer, a deeper graph."""
    if _is_array(value) or (_is_tensor(value) and value.grad_fn is None):
        return growing_lines.joined(key[0], key[2], at)
    if not lineage.continues(seen[-2][2], value):
        return False
    first, middle = seen[0][2], seen[1][2]
    return _is_tensor(value) or middle[: len(first)] == first


def _last(value: Any) -> list[Any]:
    """Some of the newest values of a container."""
    if isinstance(value, (list, deque)):
        return [value[-1 - k] for k in range(min(_LOOKED_AT, len(value)))]
    if isinstance(value, dict):
        return list(value.values())[-_LOOKED_AT:]
    return []


def _flat(values: list[Any]) -> list[Any]:
    return [x for value in values for x in (value if isinstance(value, (list, tuple)) else [value])]


def _has_graph(value: Any) -> bool:
    if _is_tensor(value):
        return value.grad_fn is not None
    newest = [item for item in _flat(_last(value)[:4]) if _is_tensor(item)]
    return any(item.grad_fn is not None for item in newest)


def _width(value: Any) -> float | None:
    """Bytes of one value, about."""
    if _is_tensor(value):
        return float(value.element_size())
    if _is_array(value):
        return float(value.itemsize)
    newest = _last(value)
    if not newest:
        return None
    whole = 0.0
    for item in newest:
        for part in item if isinstance(item, (list, tuple)) else (item,):
            whole += _bytes(part)
    return whole / len(newest)


def _bytes(value: Any) -> float:
    if _is_tensor(value):
        return float(value.numel() * value.element_size())
    return float(value.nbytes) if _is_array(value) else float(sys.getsizeof(value))
