"""Post-import hooks: run a callback right after a named module has been executed for the first time.

A finder on sys.meta_path wraps the module's real loader. The loader seen by the module itself and by
everybody afterwards is the real one. A callback that raises is reported to `on_fault`, never to the
importing code.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], Any]

_callbacks: dict[str, list[Callback]] = {}
_in_progress = threading.local()


def _no_fault(where: str) -> None:
    """Until the sink exists there is nowhere to report to."""


on_fault: Callable[[str], None] = _no_fault


def when_imported(name: str, callback: Callback) -> None:
    """Call `callback(module)` once, after `name` is imported; at once when it already is."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        _call(callback, module, name)
        return
    _callbacks.setdefault(name, []).append(callback)


def install() -> None:
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _call(callback: Callback, module: ModuleType, name: str) -> None:
    try:
        callback(module)
    except Exception:
        on_fault(f"import hook of {name}")


class _Finder:
    """Answers only for modules somebody waits for, and only by asking the other finders."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname not in _callbacks:
            return None
        busy: set[str] = _in_progress.__dict__.setdefault("names", set())
        if fullname in busy:
            return None
        busy.add(fullname)
        try:
            spec = find_spec(fullname)
        except (ImportError, ValueError, AttributeError):
            return None
        finally:
            busy.discard(fullname)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return None
        spec.loader = _Loader(spec.loader)
        return spec


class _Loader:
    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: Any) -> Any:
        create = getattr(self._real, "create_module", None)
        return create(spec) if create is not None else None

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._real
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        self._real.exec_module(module)
        for callback in _callbacks.pop(module.__name__, []):
            _call(callback, module, module.__name__)
