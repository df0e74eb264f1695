"""Python's own file functions, as the job sees them while its files are kept from change.

Each function asks the overlay where a path lies now and calls the real one with that. A fault of ours while
reading falls back to the path as given.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import finder
from .guard_changes import Changes
from .guard_listing import Scan
from .guard_paths import real, real_exists

_real_open = io.open
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_O_TMPFILE = getattr(os, "O_TMPFILE", 0)


class Files(Changes):
    """The patched functions; `install` puts them in place."""

    # --- opening

    def open(
        self, file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None,
        newline: Any = None, closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        rest = (mode, buffering, encoding, errors, newline, closefd, opener)
        if isinstance(file, int) or not isinstance(mode, str):
            return _real_open(file, *rest)
        if any(letter in mode for letter in "wax+"):
            path = self.write_path(file, "open", keep="w" not in mode, exclusive="x" in mode)
        else:
            path = self.read_path(file)
        if path is None:
            return _real_open(file, *rest)
        with _named(path, file):
            return _real_open(path, *rest)

    def os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if _O_TMPFILE and flags & _O_TMPFILE == _O_TMPFILE:
            where = self.kept(path, "os.open", dir_fd, True)
            if where is not None:
                self.overlay.make_folders(where)
                return real.open(self.overlay.upper(where), flags, mode)
            return real.open(path, flags, mode, dir_fd=dir_fd)
        if flags & _WRITING:
            exclusive = bool(flags & os.O_EXCL and flags & os.O_CREAT)
            found = self.write_path(path, "os.open", dir_fd, not flags & os.O_TRUNC, exclusive)
        else:
            found = self.read_path(path, dir_fd)
        if found is None:
            return real.open(path, flags, mode, dir_fd=dir_fd)
        with _named(found, path):
            return real.open(found, flags, mode)

    # --- looking

    def stat(self, path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        found = self.read_path(path, dir_fd, follow_symlinks)
        if found is None:
            return real.stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        with _named(found, path):
            return real.stat(found, follow_symlinks=follow_symlinks)

    def lstat(self, path: Any, *, dir_fd: int | None = None) -> os.stat_result:
        found = self.read_path(path, dir_fd, False)
        if found is None:
            return real.lstat(path, dir_fd=dir_fd)
        with _named(found, path):
            return real.lstat(found)

    def access(
        self, path: Any, mode: int, *, dir_fd: int | None = None, effective_ids: bool = False,
        follow_symlinks: bool = True,
    ) -> bool:  # fmt: skip
        found = self.read_path(path, dir_fd, follow_symlinks)
        if found is not None:
            path, dir_fd = found, None
        return real.access(
            path, mode, dir_fd=dir_fd, effective_ids=effective_ids, follow_symlinks=follow_symlinks
        )

    def readlink(self, path: Any, *, dir_fd: int | None = None) -> Any:
        found = self.read_path(path, dir_fd, False)
        if found is None:
            return real.readlink(path, dir_fd=dir_fd)
        with _named(found, path):
            text = self.overlay.logical(real.readlink(found))
        return os.fsencode(text) if isinstance(path, bytes) else text

    def statvfs(self, path: Any) -> Any:
        return real.statvfs(self.read_path(path) or path)

    def chdir(self, path: Any) -> None:
        found = self.read_path(path)
        with _named(found or "", path):
            real.chdir(path if found is None else found)

    def getcwd(self) -> str:
        return self.overlay.logical(real.getcwd())

    def listdir(self, path: Any = None) -> Any:
        given = "." if path is None else path
        where = self._merged(given)
        if where is None:
            return real.listdir(given)
        with _named(self.overlay.upper(where), given):
            names = self.overlay.names(where)
        return [os.fsencode(n) for n in names] if isinstance(given, bytes) else names

    def _merged(self, path: Any) -> str | None:
        """The located folder when what the job sees may differ from what is there."""
        if isinstance(path, int) or self.overlay.clean():
            return None
        try:
            where = self.overlay.locate(path)
        except (OSError, ValueError, TypeError):
            return None
        changed = real_exists(self.overlay.upper(where)) or real_exists(self.overlay.gone + where)
        return where if changed or self.overlay.hidden(where) else None

    def scandir(self, path: Any = None) -> Any:
        given: Any = "." if path is None else path
        where = self._merged(given)
        if where is None:
            return real.scandir(given)
        with _named(self.overlay.upper(where), given):
            names = self.overlay.names(where)
        return Scan(self.overlay, where, given, names)

    # --- in place of the real ones

    def install(self) -> None:
        """Replace the functions of `io`, `os` and `shutil`, and what older pathlib versions hold of them."""
        patched: dict[str, Callable[..., Any]] = {
            "open": self.os_open, "remove": self.unlink, "rename": self.rename,
            "replace": functools.partial(self.rename, call="os.replace"),
        }  # fmt: skip
        for name in [
            "access", "chdir", "getcwd", "link", "listdir", "lstat", "mkdir", "readlink", "rmdir",
            "scandir", "stat", "statvfs", "symlink", "truncate", "unlink",
        ]:  # fmt: skip
            patched[name] = getattr(self, name)
        for name in ("chmod", "chown", "utime"):
            patched[name] = functools.partial(self._attributes, name)
        for name, method in patched.items():
            original = getattr(os, name)
            function = Function(method, original, "os")
            setattr(os, name, function)
            for group in (
                "supports_dir_fd",
                "supports_effective_ids",
                "supports_fd",
                "supports_follow_symlinks",
            ):
                members = getattr(os, group)
                if original in members:
                    members.add(function)
        opened = Function(self.open, _real_open, "io")
        builtins.open = io.open = opened
        finder.when_imported("shutil", self._install_rmtree)
        pathlib = sys.modules.get("pathlib")
        accessor = getattr(pathlib, "_NormalAccessor", None)  # Python 3.10 keeps its own references
        if accessor is not None:
            for name in (*patched, "open"):
                if hasattr(accessor, name):
                    setattr(accessor, name, opened if name == "open" else getattr(os, name))

    def _install_rmtree(self, shutil: ModuleType) -> None:
        original = shutil.rmtree
        function = Function(functools.partial(self.rmtree, original), original)
        if hasattr(original, "avoids_symlink_attacks"):
            function.avoids_symlink_attacks = original.avoids_symlink_attacks  # type: ignore[attr-defined]
        shutil.rmtree = function  # type: ignore[attr-defined]


class _named:
    """An OSError about the redirected path names the path the job gave."""

    __slots__ = ("given", "path")

    def __init__(self, path: str, given: Any) -> None:
        self.path, self.given = path, given

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if isinstance(value, OSError) and value.filename == self.path:
            value.filename = self.given


class Function:
    """Stands for a built-in function: pickled by its name, and never bound when a class holds it."""

    def __init__(self, method: Callable[..., Any], original: Any, module: str | None = None) -> None:
        self._method = method
        self.__module__ = module or original.__module__
        self.__name__ = self.__qualname__ = original.__name__
        self.__doc__ = original.__doc__
        self.__wrapped__ = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._method(*args, **kwargs)

    def __reduce__(self) -> str:
        return str(self.__qualname__)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)
