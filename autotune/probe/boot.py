"""Start of the observer in one process: announce, decide, install the import hooks.

No torch import here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from types import ModuleType
from typing import Any

from . import children, finder
from .core import core
from .process import describe, write_hello
from .settings import load
from .sink import Sink

# module imported by the job -> module of ours whose install(module) then runs, in this order
_HOOKS: tuple[tuple[str, str], ...] = (("argparse", "hook_cli"), ("torch", "hooks_torch"))


def start(inject: str, chained: bool) -> None:
    """`inject`: the folder on PYTHONPATH; `chained`: another sitecustomize was found and run."""
    settings = load(os.path.join(inject, "settings.json"))
    description = describe()
    write_hello(os.path.join(settings.folder, "hello"), {**description, "chained_sitecustomize": chained})
    core.settings = settings
    core.sink = Sink(settings.raw)
    core.boot_s = time.monotonic()
    finder.on_fault = core.sink.fault
    finder.install()
    children.install(inject)
    if settings.protect:
        _install_guard(settings, core.emit)
    if not description["armed"]:
        core.reason = description["reason"]
        return
    core.active = True
    for name, module in _HOOKS:
        finder.when_imported(name, _Install(module))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)
    from . import ending, hook_carriers, hook_logging

    ending.install()
    hook_carriers.install_all()
    hook_logging.install_all()


class _Install:
    """Import one of our hook modules only when the module it hooks has been imported."""

    def __init__(self, module: str) -> None:
        self.module = module

    def __call__(self, target: ModuleType) -> None:
        if core.active:
            importlib.import_module(f"{__package__}.{self.module}").install(target)


def optional(module: str) -> Any:
    """A part that a launch may go without; None when it is not there or does not load."""
    if importlib.util.find_spec(f"{__package__}.{module}") is None:
        return None
    try:
        return importlib.import_module(f"{__package__}.{module}")
    except Exception:
        core.sink.fault(f"import of {module}")
        return None


def _install_guard(*args: Any) -> None:
    guard = optional("guard")
    if guard is None:
        return
    try:
        guard.install(*args)
    except Exception:
        core.sink.fault("guard.install")


def _after_fork() -> None:
    """A forked child of a rank is a worker; a forked child of anything else may become a rank itself."""
    core.sink.after_fork()
    if core.rank is not None:
        core.rank = None
        core.disarm("forked from a rank")
    core.hook_ns = 0
