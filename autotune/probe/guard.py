"""Keeps the user's files from change while a job is observed or tried.

A stopped job runs its `finally` and `atexit`: without this a model of three steps is saved over the real
one, old checkpoints are rotated away, a hub push goes out. Here changes go to a sandbox that the job reads
back as its own files; what cannot be redirected is refused with the file's name.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any


def install(settings: Any, emit: Callable[..., None]) -> None:
    """Set up the guard in this process; called before any code of the job. Never leaves it half done."""
    from . import guard_audit

    if getattr(sys, "_autotune_guarded", False):
        return
    sys._autotune_guarded = True  # type: ignore[attr-defined]
    # A cached .pyc beside the user's sources would be a new file of theirs.
    sys.dont_write_bytecode = True
    try:
        from .core import core
        from .guard_files import Files
        from .guard_paths import Overlay
        from .guard_report import Reporter

        overlay = Overlay(
            settings.folder, settings.sandbox, tuple(settings.protected_roots), tuple(settings.allow_write)
        )
        overlay.keep(settings.kept_in_temporary)
        report = Reporter(emit)
        files = Files(overlay, report, core.sink.fault)
        guard_audit.install(overlay, report)
        files.install()
    except Exception:
        guard_audit.refuse_everything(settings.folder)
        sys.stderr.write("autotune: the write guard could not be set up; this process may not write files\n")
        traceback.print_exc()
        raise
    from . import guard_commands, guard_native, guard_push

    guard_native.install(files)
    guard_push.install(report)
    guard_commands.install(files)
