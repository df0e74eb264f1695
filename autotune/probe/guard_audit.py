"""The last line: an audit hook that refuses every change to a kept path that was not redirected.

It catches code that holds the interpreter's own functions or goes around the patched ones. It cannot catch
native code that opens files by itself; the known ones are redirected in guard_native.
"""

from __future__ import annotations

import errno
import os
import posixpath
import sys
from collections.abc import Callable
from typing import Any

from .guard_paths import KEPT, Overlay, real, real_exists, real_is_dir, real_realpath

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# event -> (position of a path, position of its directory descriptor or None), for each path
_EVENTS: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.setxattr": ((0, None),),
    "os.removexattr": ((0, None),),
    "shutil.rmtree": ((0, 1),),
}


def install(overlay: Overlay, report: Callable[[str, str, str], None]) -> None:
    """Add the hook; it stays for the life of the process."""

    def check(event: str, path: Any, dir_fd: Any) -> None:
        if path is None or isinstance(path, int):
            return
        try:
            text = os.fsdecode(path)
            if not text.startswith("/"):
                at = isinstance(dir_fd, int) and dir_fd >= 0
                text = posixpath.join(real.readlink(f"/proc/self/fd/{dir_fd}") if at else real.getcwd(), text)
            if event == "open":
                where = real_realpath(text)
                if real_is_dir(where):  # cannot be written; tempfile opens a folder with an opener of its own
                    return
            else:
                folder, name = posixpath.split(text.rstrip("/"))
                where = posixpath.join(real_realpath(folder), name)
            if overlay.policy(where) != KEPT:
                return
        except (TypeError, ValueError, UnicodeError):
            return  # not a path: the call itself fails
        except OSError as exception:
            raise PermissionError(errno.EACCES, f"autotune could not check this {event}", path) from exception
        call = "open" if event == "open" else event
        if where.endswith(".pyc") or "/__pycache__" in where:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), where)
        report("refused", call, where)
        state = (
            "existed before and would be changed" if real_exists(where) else "would be a new file of yours"
        )
        raise PermissionError(
            errno.EACCES, f"autotune refused {call}: it {state}; to allow it: --allow-write {where}", where
        )

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            flags = args[2]
            if isinstance(flags, int) and flags & _WRITING:
                check(event, args[0], None)
            return
        positions = _EVENTS.get(event)
        if positions is not None:
            for at, fd_at in positions:
                check(event, args[at], args[fd_at] if fd_at is not None and fd_at < len(args) else None)

    sys.addaudithook(hook)


def refuse_everything(folder: str) -> None:
    """When the guard itself could not be set up: no write outside the launch folder and devices at all."""
    free = (folder + "/", "/dev/", "/proc/")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        writing = event in _EVENTS or (event == "open" and isinstance(args[2], int) and args[2] & _WRITING)
        if writing and isinstance(args[0], (str, bytes)) and not os.fsdecode(args[0]).startswith(free):
            raise PermissionError(errno.EACCES, "autotune could not set up its write guard", args[0])

    sys.addaudithook(hook)
