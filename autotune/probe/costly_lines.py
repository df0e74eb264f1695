"""Where float64 and one-hot matrices come into training: the lines of the user's code.

Only the places are told; how much time they cost is read from the trace.
"""

from __future__ import annotations

import sys
from typing import Any

from . import places
from .wrapping import observe

_told: set[str] = set()


def install(torch: Any) -> None:
    observe(torch, "set_default_dtype", before=_default)
    observe(torch.nn.Module, "double", before=_doubled)
    observe(torch.nn.Module, "to", before=_moved)
    observe(torch.nn.functional, "one_hot", before=_one_hot)


def _default(original: Any, args: Any, kwargs: Any) -> None:
    if _is_double((*args, *kwargs.values())):
        _tell("torch.set_default_dtype", sys._getframe(1))


def _doubled(original: Any, args: Any, kwargs: Any) -> None:
    _tell("torch.nn.Module.double", sys._getframe(1))


def _moved(original: Any, args: Any, kwargs: Any) -> None:
    if _is_double((*args[1:], *kwargs.values())):
        _tell("torch.nn.Module.to", sys._getframe(1))


def _one_hot(original: Any, args: Any, kwargs: Any) -> None:
    _tell("torch.nn.functional.one_hot", sys._getframe(1), "one_hot")


def _is_double(values: Any) -> bool:
    """`to` takes a dtype or a tensor whose dtype is meant."""
    torch: Any = sys.modules["torch"]
    return any(
        value is torch.float64 or (isinstance(value, torch.Tensor) and value.dtype is torch.float64)
        for value in values
    )


def called_with(torch: Any, named: dict[str, Any], frame: Any) -> list[str]:
    """Names of the arguments in float64 of a training call of the model."""
    tensors = {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}
    found = [name for name, value in tensors.items() if value.dtype is torch.float64]
    if found:
        _tell("forward", frame)
    return found


def _tell(callee: str, frame: Any, kind: str = "double_precision") -> None:
    if callee in _told:
        return
    place = places.of(frame)
    if place is not None:
        _told.add(callee)
        places.tell(kind, place, callee, 1)
