"""Ending the job after the last wanted step so that every launcher reports success.

Everything is on disk first. Then SystemExit(0) is raised at the step boundary; a job that swallows it, or
hangs in its own clean-up, is ended by os._exit(0): at once when another step begins, else after
`stop_grace_s`.
"""

from __future__ import annotations

import sys
import threading
import time

from .core import core

stopping = False


def stop() -> None:
    """Does not return: raises SystemExit(0), or leaves by os._exit."""
    global stopping
    from . import ending
    from .windows import synchronise

    if stopping:
        leave()
    stopping = True
    try:
        synchronise()
    except Exception:
        core.sink.fault("synchronise before the stop")
    ending.finish("stopped")
    if core.settings.stop == "hard":
        leave()
    threading.Thread(
        target=_watch, args=(core.settings.stop_grace_s,), daemon=True, name="autotune-stop"
    ).start()
    raise SystemExit(0)


def check() -> None:
    """Called where a step goes on: a job that swallowed the stop is ended now."""
    if stopping:
        leave()


def leave() -> None:
    """Flush what the job printed and end the process without its clean-up."""
    from . import ending

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    ending.real_os_exit(0)


def _watch(grace_s: float) -> None:
    time.sleep(grace_s)
    leave()
