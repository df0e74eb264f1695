"""How the process ended: exit.json, written once, from whichever end comes first."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from types import TracebackType
from typing import Any

from .core import call_parity, core
from .redaction import clean

real_os_exit = os._exit
_done = False
_error: BaseException | None = None
_exit_code = 0  # of the last sys.exit


def install() -> None:
    atexit.register(_at_exit)
    os._exit = _os_exit  # type: ignore[assignment]
    previous = sys.excepthook
    real_exit = sys.exit

    @functools.wraps(real_exit)
    def leave(status: Any = None, /) -> Any:
        global _exit_code
        _exit_code = status if isinstance(status, int) else 0 if status is None else 1
        real_exit(status)

    sys.exit = leave

    def excepthook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> Any:
        note_error(value)
        try:
            from . import own_frames

            trace = own_frames.without(value, trace)
        except Exception:
            core.sink.fault("own_frames.without")
        return previous(kind, value, trace)

    sys.excepthook = excepthook


def note_error(error: BaseException) -> None:
    global _error
    if _error is None and not isinstance(error, SystemExit):
        _error = error


def out_of_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return (
        type(error).__name__ == "OutOfMemoryError"
        or isinstance(error, MemoryError)
        or (isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text))
    )


def finish(status: str, code: int | None = None) -> None:
    """Write the last events and exit.json; later calls do nothing."""
    global _done
    if _done or core.sink is None:
        return
    error = _error if _error is not None else getattr(sys, "last_value", None)
    if isinstance(error, SystemExit):
        error = None
    if core.rank is None and core.active and error is not None and "torch" in sys.modules:
        # the job failed before its first step: its error (out of memory, say) is worth a record
        from . import ranks

        torch: Any = sys.modules["torch"]
        if out_of_memory(error) or (getattr(torch, "cuda", None) is not None and torch.cuda.is_initialized()):
            ranks.promote("error before the first step")
    if core.rank is None:
        core.sink.flush()
        return
    _done = True
    from . import evaluation, report, tracing
    from .steps import steps

    try:
        tracing.abandon()
        steps.finish()
        evaluation.over()
    except Exception:
        core.sink.fault("last step")
    if status != "stopped":
        call_parity("finish")
    if status == "completed" and error is not None:
        status = "exception"
    text = None
    if status == "exception" and error is not None:
        text = clean(f"{type(error).__name__}: {error}")
        if out_of_memory(error):
            core.emit("out_of_memory", {"error": text})
    elif status == "completed" and (code or _exit_code):
        status, text = "exception", f"the process ended itself with exit code {code or _exit_code}"
    report.at_end()
    core.sink.sync()
    core.sink.write_json(
        "exit.json",
        {
            "status": status,
            "error": text,
            "code": code,
            "steps": steps.index,
            "hook_faults": core.sink.faults,
            "hook_fault_count": core.sink.fault_count,
            "hook_ms_total": round(core.hook_ns / 1e6, 3),
        },
    )


def _at_exit() -> None:
    try:
        finish("completed")
    except Exception:
        core.sink.fault("finish at exit")
    from . import stop

    if stop.stopping:
        # Registered first, so this runs last: the job's own clean-up is over. What the interpreter does from
        # here on (timers without their handlers, threads of process groups) could only spoil the exit code.
        stop.leave()
    core.active = False  # what runs from here on may find modules taken down


@functools.wraps(real_os_exit)
def _os_exit(code: int) -> None:
    try:
        if core.active or core.rank is not None:
            finish("completed", code)
    except BaseException:
        pass
    real_os_exit(code)
