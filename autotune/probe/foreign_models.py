"""Modules beside the trained model, in no optimizer, that ask for gradients: reference and teacher models."""

from __future__ import annotations

import gc
import sys
from typing import Any

from . import sites
from .core import hook

BESIDE = "beside:"  # begins the names of their parameters
_FEWEST = 10_000  # parameters of a module that is worth a look


class Foreign:
    """`names`: parameter id -> name; a name begins with BESIDE and the class of its module."""

    def __init__(self, roots: list[Any], used: set[int]) -> None:
        self.roots = roots
        self.names = {
            id(parameter): f"{BESIDE}{type(module).__name__}.{name}"
            for module in roots
            for name, parameter in module.named_parameters()
            if parameter.requires_grad and id(parameter) not in used
        }

    def keep(self, leaves: list[Any]) -> None:
        """Watch the next call of those that really are in the graph, so that its place is known."""
        seen = {id(leaf) for leaf in leaves}
        for module in self.roots:
            if any(id(parameter) in seen for parameter in module.parameters()):
                _Called(module)


class _Called:
    def __init__(self, module: Any) -> None:
        self.handle = module.register_forward_pre_hook(self)

    def __call__(self, module: Any, args: Any) -> None:
        self.handle.remove()
        _record(module, sys._getframe(1))


@hook
def _record(module: Any, frame: Any) -> None:
    kind = type(module)
    sites.record("foreign_forward", f"{kind.__module__}.{kind.__qualname__}", frame=frame)


def find(root: Any, used: set[int]) -> Foreign:
    """Outermost modules none of whose parameters is the root's or an optimizer's."""
    base: Any = sys.modules["torch"].nn.Module
    modules = [
        thing for thing in gc.get_objects() if base in type(thing).__mro__ and "_modules" in thing.__dict__
    ]
    children = {id(child) for module in modules for child in module._modules.values() if child is not None}
    mine = used | {id(parameter) for parameter in root.parameters()}
    roots = []
    for module in modules:
        if id(module) in children or module is root:
            continue
        parameters = list(module.parameters())
        if sum(p.numel() for p in parameters) < _FEWEST or any(id(p) in mine for p in parameters):
            continue
        roots.append(module)
    return Foreign(roots, used)


def modules(names: set[str]) -> list[str]:
    """Classes of the modules that these parameters belong to."""
    return sorted({name.removeprefix(BESIDE).split(".", 1)[0] for name in names})
