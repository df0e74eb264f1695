"""Several backwards through the same forward: nodes of the graph that a step goes through more than once.

Looked at in one step, and only when a backward keeps its graph (`retain_graph=True`): its nodes are held, and
the next backward of the same step is compared with them. Micro-batches have nodes of their own, losses of one
forward share them. Nothing is said when the gradients are reset in between (each loss's own are wanted), when
a graph of the gradients is asked for, or when an optimizer steps in between.
"""

from __future__ import annotations

from typing import Any

from .core import core

_MOST_NODES = 300_000
_SAME_GRAPH_FRAC = 0.5  # a backward with so many nodes gone through already has no forward of its own
_first_step: int | None = None
_over = False
_kept: set[Any] = set()
_visits = _again = _backwards = _repeats = 0


def backward_begins(tensors: Any, args: Any, kwargs: Any, steps: Any) -> None:
    """`args`: what follows the tensors: the gradients, retain_graph, create_graph, inputs."""
    global _first_step, _visits, _again, _backwards, _repeats
    if _over or not core.settings.full or steps.index < 1:
        return
    if _first_step is None:
        _first_step = steps.index
    if steps.index > _first_step or steps.optimizer_calls:
        _end()
        return
    retained = _given(args, kwargs, 1, "retain_graph")
    if _given(args, kwargs, 2, "create_graph") or _given(args, kwargs, 3, "inputs"):
        _forget()
        return
    _backwards += 1
    if not retained and not _kept:
        return
    nodes = _walk([node for tensor in tensors if (node := getattr(tensor, "grad_fn", None)) is not None])
    if nodes is None:
        _forget()
        return
    shared = len(nodes & _kept)
    _visits += len(nodes)
    _again += shared
    _repeats += bool(nodes) and shared >= _SAME_GRAPH_FRAC * len(nodes)
    _kept.update(nodes)


def gradients_reset(steps: Any) -> None:
    """Between two backwards of one step: the job wants the gradients of each loss apart."""
    if _kept and steps.backwards and not steps.optimizer_calls:
        _forget()


def update_begins() -> None:
    """The step's backwards are over: the nodes, and what they hold, are let go."""
    _kept.clear()


def collect() -> dict[str, Any]:
    """Fields of ModelRecord; nothing where no backward kept its graph."""
    if not _visits:
        return {}
    return {
        "rewalked_backward_frac": _again / _visits,
        "backwards_per_graph": _backwards / max(1, _backwards - _repeats),
    }


def _given(args: Any, kwargs: Any, position: int, name: str) -> bool:
    value = kwargs.get(name, args[position] if len(args) > position else None)
    return value is not None and value is not False


def _end() -> None:
    global _over
    _over = True
    _kept.clear()


def _forget() -> None:
    global _visits, _again
    _visits = _again = 0
    _end()


def _walk(roots: list[Any]) -> set[Any] | None:
    """The operations of a graph without its leaves, which all graphs share; None for a huge one."""
    seen: set[Any] = set()
    stack = roots
    while stack:
        node = stack.pop()
        if node in seen or type(node).__name__ == "AccumulateGrad":
            continue
        if len(seen) > _MOST_NODES:
            return None
        seen.add(node)
        stack += [child for child, _ in node.next_functions if child is not None]
    return seen
