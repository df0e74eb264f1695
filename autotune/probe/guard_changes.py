"""Changes to files, made to the sandbox instead of the real ones: create, remove, rename, link, attributes.

A fault of ours in here becomes a refusal, because a write must not slip through.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable
from typing import Any

from .guard_paths import GRANTED, KEPT, Overlay, real, real_exists, real_is_dir, real_is_link


class Changes:
    """Changing functions; `Files` adds the looking ones."""

    def __init__(
        self, overlay: Overlay, report: Callable[[str, str, str], None], fault: Callable[[str], None]
    ):
        self.overlay = overlay
        self.report = report
        self.fault = fault

    # --- where a path lies now; None: as given

    def read_path(self, path: Any, dir_fd: int | None = None, follow: bool = True) -> str | None:
        if isinstance(path, int) or self.overlay.clean():
            return None
        try:
            where = self.overlay.locate(path, dir_fd, follow)
            if self.overlay.policy(where) != KEPT:
                return None
            return self.overlay.view(where)
        except (OSError, ValueError, TypeError):
            return None  # the real call says what is wrong
        except Exception:
            self.fault("guard read path")
            return None

    def write_path(
        self, path: Any, call: str, dir_fd: int | None = None, keep: bool = True, exclusive: bool = False
    ) -> str | None:
        """For a file that will be written. Raises OSError as the real call would."""
        if isinstance(path, int):
            return None
        where = self.kept(path, call, dir_fd, True)
        if where is None:
            return None
        with self.closed(call, where):
            target = self.overlay.for_write(where, keep, exclusive)
            self.report("redirected", call, where)
            return target

    def kept(self, path: Any, call: str, dir_fd: int | None = None, follow: bool = False) -> str | None:
        """The located path when it is to be kept, None when the real call may go on."""
        with self.closed(call, path):
            try:
                where = self.overlay.locate(path, dir_fd, follow)
            except (TypeError, ValueError):
                return None  # not a path: the real call says so
            policy = self.overlay.policy(where)
            if policy == GRANTED and real_exists(where):
                self.report("allowed", call, where)
            return where if policy == KEPT else None

    def closed(self, call: str, path: Any) -> _Closed:
        return _Closed(self.fault, call, path)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        where = self.kept(path, "os.mkdir", dir_fd)
        if where is None:
            return real.mkdir(path, mode, dir_fd=dir_fd)
        with self.closed("os.mkdir", where):
            if self.overlay.exists(where):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self.overlay.parent_for_write(where)
            real.mkdir(self.overlay.upper(where), mode)
            self.report("redirected", "os.mkdir", where)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        where = self.kept(path, "os.rmdir", dir_fd)
        if where is None:
            return real.rmdir(path, dir_fd=dir_fd)
        with self.closed("os.rmdir", where):
            if not self.overlay.is_dir(where) or real_is_link(self.overlay.view(where)):
                code = errno.ENOTDIR if self.overlay.exists(where) else errno.ENOENT
                raise OSError(code, os.strerror(code), path)
            if self.overlay.names(where):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            self.drop(where, "os.rmdir")

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        where = self.kept(path, "os.remove", dir_fd)
        if where is None:
            return real.unlink(path, dir_fd=dir_fd)
        with self.closed("os.remove", where):
            if not self.overlay.exists(where):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if self.overlay.is_dir(where) and not real_is_link(self.overlay.view(where)):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            self.drop(where, "os.remove")

    def drop(self, where: str, call: str) -> None:
        """The job no longer sees this file or folder; only the sandbox changes."""
        upper = self.overlay.upper(where)
        if real_exists(upper):
            if real_is_dir(upper) and not real_is_link(upper):
                _remove_tree(upper)
            else:
                real.unlink(upper)
        if self.overlay.lower_visible(where):
            self.overlay.hide(where)
            self.report("suppressed", call, where)

    def rmtree(self, real_rmtree: Callable[..., None], path: Any, *rest: Any, **more: Any) -> None:
        where = self.kept(path, "shutil.rmtree", more.get("dir_fd"))
        if where is None:
            return real_rmtree(path, *rest, **more)
        view = self.overlay.view(where)
        if real_is_dir(view) and not real_is_link(view):
            with self.closed("shutil.rmtree", where):
                self.drop(where, "shutil.rmtree")
            return
        if real_is_link(view):
            wrong = OSError("Cannot call rmtree on a symbolic link")
        else:
            code = errno.ENOTDIR if real_exists(view) else errno.ENOENT
            wrong = OSError(code, os.strerror(code), path)
        onerror = rest[1] if len(rest) > 1 else more.get("onerror")
        if more.get("onexc") is not None:
            more["onexc"](os.lstat, path, wrong)
        elif onerror is not None:
            onerror(os.lstat, path, (type(wrong), wrong, None))
        elif not (rest[0] if rest else more.get("ignore_errors", False)):
            raise wrong

    def rename(
        self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None,
        call: str = "os.rename",
    ) -> None:  # fmt: skip
        source = self.kept(src, call, src_dir_fd)
        target = self.kept(dst, call, dst_dir_fd)
        if source is None and target is None:
            return real.replace(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        with self.closed(call, target or source):
            self._move(
                source or self.overlay.locate(src, src_dir_fd, False),
                target or self.overlay.locate(dst, dst_dir_fd, False),
                call,
            )

    def _move(self, source: str, target: str, call: str) -> None:
        overlay = self.overlay
        if not overlay.exists(source):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source, None, target)
        if source == target:
            return
        folder = overlay.is_dir(source) and not real_is_link(overlay.view(source))
        if overlay.exists(target):
            target_folder = overlay.is_dir(target) and not real_is_link(overlay.view(target))
            code = 0
            if folder and not target_folder:
                code = errno.ENOTDIR
            elif target_folder and not folder:
                code = errno.EISDIR
            elif folder and overlay.names(target):
                code = errno.ENOTEMPTY
            if code:
                raise OSError(code, os.strerror(code), source, None, target)
        if overlay.policy(target) == KEPT:
            overlay.parent_for_write(target)
            place = overlay.upper(target)
        else:
            place = target
        if folder and real_is_dir(place):
            real.rmdir(place)
        upper = overlay.upper(source)
        whole = real_exists(upper) and not (folder and overlay.lower_visible(source))
        plain = overlay.policy(source) != KEPT
        if folder and overlay.lower_visible(target) and place != target:
            overlay.hide(target)  # an empty folder stays empty below what moves in
        try:
            if not whole and not plain:
                raise OSError(errno.EXDEV, "")
            real.replace(source if plain else upper, place)
        except OSError as exception:
            if exception.errno != errno.EXDEV:
                raise
            overlay.copy_tree(source, place)
        if not plain:
            self.drop(source, call)
        elif real_exists(source):
            _remove_tree(source) if folder else real.unlink(source)
        if place != target:
            self.report("redirected", call, target)

    def link(
        self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:  # fmt: skip
        source = self.overlay.locate(src, src_dir_fd, follow_symlinks)
        target = self.kept(dst, "os.link", dst_dir_fd)
        if target is None and self.overlay.policy(source) != KEPT:
            return real.link(
                src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks
            )
        with self.closed("os.link", target or source):
            # A second name for a kept file would let a later write change it: the job gets a copy.
            if target is None:
                self.overlay.copy_tree(source, self.overlay.locate(dst, dst_dir_fd, False))
                return
            if self.overlay.exists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), dst)
            self.overlay.parent_for_write(target)
            upper = self.overlay.upper(source)
            if real_exists(upper):
                real.link(upper, self.overlay.upper(target))
            else:
                self.overlay.copy_tree(source, self.overlay.upper(target))
            self.report("redirected", "os.link", target)

    def symlink(
        self, src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None
    ) -> None:
        where = self.kept(dst, "os.symlink", dir_fd)
        if where is None:
            return real.symlink(src, dst, target_is_directory, dir_fd=dir_fd)
        with self.closed("os.symlink", where):
            if self.overlay.exists(where):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), dst)
            self.overlay.parent_for_write(where)
            text = os.fsdecode(src)
            pointed = posixpath.normpath(posixpath.join(posixpath.dirname(where), text))
            if real_exists(self.overlay.upper(pointed)):
                text = self.overlay.upper(pointed) if text.startswith("/") else text
            elif self.overlay.lower_visible(pointed):
                text = pointed
            real.symlink(text, self.overlay.upper(where))
            self.report("redirected", "os.symlink", where)

    def truncate(self, path: Any, length: int) -> None:
        found = self.write_path(path, "os.truncate")
        real.truncate(path if found is None else found, length)

    def _attributes(self, name: str, path: Any, *rest: Any, **more: Any) -> None:
        """chmod, chown, utime: done to the job's own version, left out for the real one."""
        follow = more.get("follow_symlinks", True)
        where = None if isinstance(path, int) else self.kept(path, f"os.{name}", more.get("dir_fd"), follow)
        if where is None:
            getattr(real, name)(path, *rest, **more)
            return
        more.pop("dir_fd", None)
        with self.closed(f"os.{name}", where):
            upper = self.overlay.upper(where)
            if real_exists(upper):
                getattr(real, name)(upper, *rest, **more)
            elif self.overlay.lower_visible(where):
                self.report("suppressed", f"os.{name}", where)
            else:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class _Closed:
    """Around a change: a fault of ours becomes a refusal, never a write that slips through."""

    __slots__ = ("call", "fault", "path")

    def __init__(self, fault: Callable[[str], None], call: str, path: Any) -> None:
        self.fault, self.call, self.path = fault, call, path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if value is None or isinstance(value, (OSError, TypeError)) or not isinstance(value, Exception):
            return
        self.fault(f"guard {self.call}")
        raise PermissionError(
            errno.EACCES, f"autotune could not redirect this {self.call} and refused it", self.path
        ) from value


def _remove_tree(path: str) -> None:
    """Remove a tree with the real functions; only ever called inside the sandbox or a free folder."""
    for name in real.listdir(path):
        inner = posixpath.join(path, name)
        if real_is_dir(inner) and not real_is_link(inner):
            _remove_tree(inner)
        else:
            real.unlink(inner)
    real.rmdir(path)
