"""Gradients that no optimizer uses: found once, in the autograd graph of one backward.

From the loss the graph is walked to its leaves. The gradient of a parameter that stands in no optimizer is
computed for nothing; so is every node of the graph that leads to such parameters only. The same holds for
a second module beside the trained one (a reference or teacher model). Shards and other stand-ins for
parameters are taken for used.
"""

from __future__ import annotations

from typing import Any

from . import foreign_models, models, penalties
from .core import core

_MOST_NODES = 300_000
_HIDDEN = ("CheckpointFunctionBackward",)  # holds parameters that the graph does not show
_done = False
_found: dict[str, Any] = {}
_unused: list[tuple[str, Any, int]] = []  # name, parameter, its version when the graph was walked


def backward_begins(tensors: Any, steps_ended: int) -> None:
    """Once, after the first step: then the optimizers are there."""
    global _done
    if _done or not core.settings.full or steps_ended < 1:
        return
    _done = True
    root = models.root()
    used = {id(p) for o in models.optimizers() for group in o.param_groups for p in group["params"]}
    if root is None or not used:
        return
    names = {id(parameter): name for name, parameter in root.named_parameters()}
    nodes = [node for tensor in tensors if (node := getattr(tensor, "grad_fn", None)) is not None]
    foreign = foreign_models.find(root, used)
    needed = _walk(nodes, (set(names) - used) | set(foreign.names))
    if needed is None:
        return
    leaves = [node.variable for node in needed if _is_leaf(node)]
    foreign.keep(leaves)
    names = {**names, **foreign.names}
    known = [leaf for leaf in leaves if id(leaf) in names]
    if not any(id(leaf) in used for leaf in known):
        return  # the optimizers hold copies: what they use cannot be told
    unused = [leaf for leaf in known if id(leaf) not in used]
    _unused.extend((names[id(leaf)], leaf, leaf._version) for leaf in unused)
    inner = [flag for node, flag in needed.items() if not _is_leaf(node)]
    penalised = [leaf for leaf in penalties.find(nodes, needed) if id(leaf) in used]
    trained = sum(leaf.numel() for leaf in known if id(leaf) in used)
    _found.update(
        {
            "penalised_frac": min(1.0, sum(p.numel() for p in penalised) / trained) if trained else 0.0,
            "gradient_parameters": sum(leaf.numel() for leaf in known),
            "needless_backward_frac": inner.count(False) / len(inner) if inner else 0.0,
        }
    )


def _is_leaf(node: Any) -> bool:
    return type(node).__name__ == "AccumulateGrad"


def _walk(roots: list[Any], unused: set[int]) -> dict[Any, bool] | None:
    """Node -> whether it leads to something other than an unused parameter; None for a huge graph."""
    needed: dict[Any, bool] = {}
    stack: list[tuple[Any, bool]] = [(node, False) for node in roots]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            if not needed[node]:
                needed[node] = any(needed.get(child, False) for child, _ in node.next_functions if child)
            continue
        if node in needed:
            continue
        if len(needed) > _MOST_NODES:
            return None
        if _is_leaf(node):
            needed[node] = id(node.variable) not in unused
            continue
        needed[node] = type(node).__name__ in _HIDDEN
        stack.append((node, True))
        stack += [(child, False) for child, _ in node.next_functions if child is not None]
    return needed


def collect(root: Any) -> dict[str, Any]:
    """Fields of ModelRecord; nothing before the graph was walked. A parameter written to since is in use."""
    if not _found:
        return {}
    idle = [(name, leaf) for name, leaf, version in _unused if leaf._version == version]
    found = {**_found, "unused_gradient_parameters": sum(leaf.numel() for _, leaf in idle)}
    if len(idle) < len(_unused):
        found["needless_backward_frac"] = 0.0
    own = {name for name, _ in idle if not name.startswith(foreign_models.BESIDE)}
    beside = {name for name, _ in idle if name.startswith(foreign_models.BESIDE)}
    found["unused_gradients_beside"] = bool(beside) and not own
    found["unused_gradient_modules"] = (_modules(root, own) + foreign_models.modules(beside))[:8]
    return found


def _modules(root: Any, names: set[str]) -> list[str]:
    """The largest parts of the model all of whose parameters are among `names`."""
    every = [name for name, _ in root.named_parameters()]
    parts: list[str] = []
    for name in every:
        if name not in names or any(name.startswith(part + ".") for part in parts):
            continue
        part = name
        while "." in part:
            outer = part.rsplit(".", 1)[0]
            if not all(other in names for other in every if other.startswith(outer + ".")):
                break
            part = outer
        parts.append(part)
    return parts
