"""Tells what the guard did: one event per action and target, with the user's line that asked for it."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Callable
from typing import Any

_MAX_RECORDS = 300


class Reporter:
    def __init__(self, emit: Callable[..., None]) -> None:
        self._emit = emit
        self._seen: set[tuple[str, str, str]] = set()
        self._busy = threading.local()
        self.dropped = 0

    def __call__(self, action: str, call: str, target: str) -> None:
        """Report once per action, call and target; never raises."""
        key = (action, call, target)
        if key in self._seen or getattr(self._busy, "value", False):
            return
        if len(self._seen) >= _MAX_RECORDS:
            self.dropped += 1
            return
        self._busy.value = True
        try:
            self._seen.add(key)
            file, line = user_line()
            fields = {"action": action, "call": call, "target": target, "file": file, "line": line}
            self._emit("guard", fields, urgent=True)
        except Exception:
            pass
        finally:
            self._busy.value = False


_HERE = os.path.dirname(os.path.abspath(__file__))
_LIBRARIES = tuple(
    sorted({p for n in ("stdlib", "platstdlib", "purelib", "platlib") if (p := sysconfig.get_paths().get(n))})
)


def user_line() -> tuple[str | None, int | None]:
    """File and line of the innermost frame that is neither ours nor in a library."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        inside = name.startswith((_HERE, "<")) or "site-packages" in name or "dist-packages" in name
        if not inside and not name.startswith(_LIBRARIES):
            return os.path.abspath(name), frame.f_lineno
        frame = frame.f_back
    return None, None
