"""Trained parameters whose own values go into the loss: a penalty that stands in the autograd graph.

From the loss only scalars that are added, scaled or stacked are followed, down to the norm or sum that made
one. What that was made of must be values of parameters and nothing else: a norm or a mean inside the model
(weight standardization, a cosine classifier) ends in products with the data and is never reached.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_MOST_NODES = 20_000
_OF_SCALARS = frozenset(("Add", "Sub", "Mul", "Div", "Neg", "Pow", "Sqrt", "Stack", "Sum", "Mean"))
_REDUCED = frozenset(("Norm", "LinalgVectorNorm", "ForeachNorm", "Sum", "Mean", "Dot"))
_BY_ELEMENT = _REDUCED | frozenset(
    ("Pow", "Abs", "Square", "Mul", "Sub", "Add", "Div", "Neg", "Sqrt", "View", "UnsafeView", "ReshapeAlias",
     "Alias", "T", "Transpose", "Cat", "Stack", "ToCopy", "Clone", "Expand")
)  # fmt: skip


def find(roots: list[Any], nodes: Iterable[Any]) -> list[Any]:
    """Leaves in penalties under the roots that the model uses as well; `nodes`: the whole graph."""
    found: dict[int, Any] = {}
    inside: set[Any] = set()  # nodes of the penalties
    seen: set[Any] = set()
    stack = list(roots)
    while stack and len(seen) < _MOST_NODES:
        node = stack.pop()
        if node in seen or _is_leaf(node):
            continue
        seen.add(node)
        if _name(node) in _REDUCED:
            leaves, below = _only_parameters(node)
            if leaves:
                found.update({id(leaf): leaf for leaf in leaves})
                inside |= below
                continue
        if _name(node) in _OF_SCALARS and _scalars(node):
            stack += [child for child, _ in node.next_functions if child is not None]
    if not found:
        return []
    in_model = {
        id(child.variable)
        for node in nodes
        if node not in inside
        for child, _ in node.next_functions
        if child is not None and _is_leaf(child)
    }
    return [leaf for key, leaf in found.items() if key in in_model]


def _only_parameters(top: Any) -> tuple[list[Any], set[Any]]:
    """The leaves that a reduced value was made of, and the nodes; no leaves when anything else went into it.

    Of two operands one without a node may be data: a weight times the inputs is no penalty.
    """
    leaves: list[Any] = []
    seen: set[Any] = {top}
    stack = [top]
    while stack:
        node = stack.pop()
        for child, _ in node.next_functions:
            if child is None:
                return [], seen
            if _is_leaf(child):
                leaves.append(child.variable)
            elif _name(child) not in _BY_ELEMENT or len(seen) > _MOST_NODES:
                return [], seen
            elif child not in seen:
                seen.add(child)
                stack.append(child)
    return leaves, seen


def _scalars(node: Any) -> bool:
    """A scalar, or scalars put in a row (one value for each of them)."""
    shapes = [tuple(item.shape) for item in getattr(node, "_input_metadata", ())]
    return bool(shapes) and all(
        not shape or (len(shape) == 1 and _name(node) == "Stack") or shape == (1,) for shape in shapes
    )


def _name(node: Any) -> str:
    return type(node).__name__.rstrip("0123456789").removesuffix("Backward")


def _is_leaf(node: Any) -> bool:
    return type(node).__name__ == "AccumulateGrad"
