"""Loads a shim as a job would: rendered, as a module of its own."""

from __future__ import annotations

import sys
import types
from typing import Any

from autotune.apply.shims import render_shim


def load_shim(name: str, **arguments: object) -> Any:
    """The module `autotune_<name>` of templates/shims/<name>.py.j2."""
    module = types.ModuleType(f"autotune_{name}")
    exec(compile(render_shim(f"shims/{name}.py.j2", arguments), module.__name__, "exec"), module.__dict__)
    sys.modules[module.__name__] = module
    return module
