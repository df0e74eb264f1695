"""The one object per process that the hooks share, and the wrapper every hook runs in.

A hook may fail (its traceback goes to faults.log) and its time is summed; neither reaches the job.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .ranks import Rank
    from .settings import Settings
    from .sink import Sink

F = TypeVar("F", bound=Callable[..., Any])


class Core:
    settings: Settings
    sink: Sink

    def __init__(self) -> None:
        self.active = False  # hooks do nothing while False
        self.reason = ""
        self.rank: Rank | None = None
        self.hook_ns = 0
        self.boot_s = 0.0
        self.parity: Any = None
        self._thread = threading.local()

    def emit(self, kind: str, fields: dict[str, Any], urgent: bool = False) -> None:
        self.sink.emit(kind, fields, urgent)

    def disarm(self, reason: str) -> None:
        self.active = False
        self.reason = reason


core = Core()


def hook(function: F) -> F:
    """Run `function` as a hook: nothing while disarmed, errors logged, time added to `core.hook_ns`.

    What a hook itself calls is not the job's doing: hooks inside a hook of the same thread do nothing.
    """
    thread = core._thread

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not core.active or getattr(thread, "busy", False):
            return None
        thread.busy = True
        start = perf_counter_ns()
        try:
            return function(*args, **kwargs)
        except Exception:
            core.sink.fault(function.__qualname__)
            return None
        finally:
            thread.busy = False
            core.hook_ns += perf_counter_ns() - start

    return run  # type: ignore[return-value]


RUN = hook(lambda: None).__code__  # the one code object of every hook's wrapper


def call_parity(method: str, *args: Any) -> None:
    """Call an optional method of the parity recorder."""
    function = getattr(core.parity, method, None)
    if function is None:
        return
    try:
        function(*args)
    except Exception:
        core.sink.fault(f"parity.{method}")
