"""One writer at a time in a run folder: two loops in one run would clear each other's starts of the job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.errors import InputError

_LOCK = ".lock"


@contextmanager
def sole_user(run: Path) -> Iterator[None]:
    """Hold the run while inside; the kernel lets go of it when the process ends in any way.

    Raises InputError when another process holds it. Where the file system knows no locks nobody is kept out.
    """
    import fcntl

    path = run / _LOCK
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        yield  # what is to be written next says why it cannot be
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                "another autotune works in this run" + _told_by(path),
                where=run.name,
                hint="wait until it has ended, or start a run of your own",
                code="run-in-use",
            ) from None
        except OSError:
            pass
        else:
            _tell(handle)
        yield
    finally:
        os.close(handle)


def _tell(handle: int) -> None:
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        pass  # a full disk: the lock itself needs no space


def _told_by(path: Path) -> str:
    try:
        number = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
    return f" (process {number})" if number.isdigit() else ""
