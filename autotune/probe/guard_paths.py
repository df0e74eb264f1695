"""Which paths are kept from change, and where their changed versions lie: an overlay in plain files.

Every path outside the free folders (temporary files, caches, devices, the launch folder, --allow-write) is
kept. What the job writes there goes to <sandbox>/files/<the same absolute path>; what it removes gets a mark
in <sandbox>/gone. Reading looks at the sandbox first, so the job sees its own changes, in every process of
the launch.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import posixpath
import re
import stat as stat_module
import threading
from typing import Any


class real:
    """The real functions: `os` is patched later, the guard itself must never use the patched ones."""

    access = staticmethod(os.access)
    chdir = staticmethod(os.chdir)
    chmod = staticmethod(os.chmod)
    chown = staticmethod(os.chown)
    getcwd = staticmethod(os.getcwd)
    link = staticmethod(os.link)
    listdir = staticmethod(os.listdir)
    lstat = staticmethod(os.lstat)
    mkdir = staticmethod(os.mkdir)
    open = staticmethod(os.open)
    readlink = staticmethod(os.readlink)
    remove = staticmethod(os.remove)
    rename = staticmethod(os.rename)
    replace = staticmethod(os.replace)
    rmdir = staticmethod(os.rmdir)
    scandir = staticmethod(os.scandir)
    stat = staticmethod(os.stat)
    statvfs = staticmethod(os.statvfs)
    symlink = staticmethod(os.symlink)
    truncate = staticmethod(os.truncate)
    unlink = staticmethod(os.unlink)
    utime = staticmethod(os.utime)


_HOME_CACHES = (".cache", ".nv", ".triton", ".tilelang", ".cupy", ".torch", ".deepspeed", ".numba", ".ray")
_CACHE_VARIABLE = re.compile(r"CACHE|(^|_)(TMP|TEMP)(DIR)?(_|$)")
_CACHE_VARIABLES = (
    "HF_HOME",
    "TORCH_HOME",
    "TORCH_EXTENSIONS_DIR",
    "XDG_RUNTIME_DIR",
    "TRITON_HOME",
    "MPLCONFIGDIR",
)
_FREE_SYSTEM = ("/dev", "/proc", "/sys", "/run", "/var/tmp", "/var/run", "/var/lock")
_FICLONE = 0x40049409

FREE, KEPT, GRANTED = "free", "kept", "granted"  # granted: free because the user said so


def real_exists(path: str) -> bool:
    try:
        real.lstat(path)
    except (OSError, ValueError):
        return False
    return True


def real_is_dir(path: str) -> bool:
    try:
        return stat_module.S_ISDIR(real.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def real_is_link(path: str) -> bool:
    try:
        return stat_module.S_ISLNK(real.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def real_realpath(path: str, _left: int = 40) -> str:
    """Symlinks resolved with the real functions; parts that do not exist are kept as they are."""
    done = "/"
    parts = [p for p in path.split("/") if p and p != "."]
    while parts:
        part = parts.pop(0)
        if part == "..":
            done = posixpath.dirname(done)
            continue
        here = posixpath.join(done, part)
        try:
            target = real.readlink(here)
        except (OSError, ValueError):
            done = here
            continue
        if _left <= 0:
            return posixpath.join(here, *parts)
        _left -= 1
        if target.startswith("/"):
            done = "/"
        parts = [p for p in target.split("/") if p and p != "."] + parts
    return done


class Overlay:
    """All decisions about paths. `locate` gives real absolute paths; the other methods take those."""

    def __init__(
        self, folder: str, sandbox: str, protected: tuple[str, ...], granted: tuple[str, ...]
    ) -> None:
        self.sandbox = real_realpath(posixpath.join(real.getcwd(), sandbox))
        self.files = posixpath.join(self.sandbox, "files")
        self.gone = posixpath.join(self.sandbox, "gone")
        rules: dict[str, str] = {}
        for path in _free_folders():
            rules[real_realpath(path)] = FREE
        for path in protected:
            rules[real_realpath(path)] = KEPT
        for path in granted:
            rules[real_realpath(posixpath.join(real.getcwd(), os.path.expanduser(path)))] = GRANTED
        rules[real_realpath(folder)] = FREE
        rules[self.sandbox] = FREE
        self._rules = rules
        self._policy = functools.lru_cache(maxsize=4096)(self._policy_of)
        self._real_folder = functools.lru_cache(maxsize=4096)(real_realpath)

    def _policy_of(self, path: str) -> str:
        """The most specific folder decides."""
        while path not in self._rules:
            above = posixpath.dirname(path)
            if above == path:
                return KEPT
            path = above
        return self._rules[path]

    def keep(self, paths: tuple[str, ...]) -> None:
        """Real paths that are kept where nothing else was said of them; there can be many."""
        for path in paths:
            self._rules.setdefault(path, KEPT)

    def policy(self, path: str) -> str:
        """free | kept | granted, for a real absolute path."""
        return self._policy(path)

    def clean(self) -> bool:
        """Nothing was redirected or removed yet by any process of the launch."""
        return not real_exists(self.files) and not real_exists(self.gone)

    # --- names

    def locate(self, path: Any, dir_fd: int | None = None, follow: bool = True) -> str:
        """The real absolute path the job means, before any redirection."""
        text = os.fsdecode(path)
        if not text:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), text)
        if not text.startswith("/"):
            base = real.getcwd() if dir_fd is None else real.readlink(f"/proc/self/fd/{dir_fd}")
            text = posixpath.join(self.logical(base), text)
        text = self.logical(text)
        if "/.." in text or text.endswith("/."):
            return self._resolve(text, follow)
        folder, name = posixpath.split(text.rstrip("/") or "/")
        real_folder = self._real_folder(folder)
        if not self._untouched(folder, real_folder):
            return self._resolve(text, follow)
        where = posixpath.join(real_folder, name) if name else real_folder
        return self._resolve(where, True) if follow and real_is_link(where) else where

    def _untouched(self, folder: str, real_folder: str) -> bool:
        """The job changed nothing that could alter where this folder is: no link made or removed."""
        if real_exists(self.upper(real_folder)):
            return False
        return folder == real_folder or not (real_exists(self.upper(folder)) or real_exists(self.gone))

    def _resolve(self, path: str, follow: bool) -> str:
        """Links resolved as the job sees them: its own links count, those it removed do not."""
        done, left = "/", 40
        parts = [p for p in path.split("/") if p and p != "."]
        while parts:
            part = parts.pop(0)
            if part == "..":
                done = posixpath.dirname(done)
                continue
            here = posixpath.join(done, part)
            if not parts and not follow:
                return here
            target = self._link(here)
            if target is None or left <= 0:
                done = here
                continue
            left -= 1
            target = self.logical(target)
            if target.startswith("/"):
                done = "/"
            parts = [p for p in target.split("/") if p and p != "."] + parts
        return done

    def _link(self, path: str) -> str | None:
        """Where a link leads; None when the job sees no link here."""
        upper = self.upper(path)
        try:
            return real.readlink(upper)
        except OSError as exception:
            if exception.errno == errno.EINVAL:
                return None  # something of the job's own that is no link
        except ValueError:
            return None
        try:
            target = real.readlink(path)
        except (OSError, ValueError):
            return None
        return None if self.hidden(path) else target

    def logical(self, path: str) -> str:
        """A path inside the sandbox back to the path it stands for."""
        if path.startswith(self.files + "/"):
            return path[len(self.files) :]
        return path

    def upper(self, path: str) -> str:
        """Where the changed version lies."""
        return self.files + path

    # --- state

    def hidden(self, path: str) -> bool:
        """The real file was removed by the job, alone or with a folder above it."""
        if not real_exists(self.gone):
            return False
        while path not in ("/", ""):
            if real_exists(f"{self.gone}{path}/.gone"):
                return True
            path = posixpath.dirname(path)
        return False

    def lower_visible(self, path: str) -> bool:
        """The real one exists and was not removed by the job."""
        return real_exists(path) and not self.hidden(path)

    def view(self, path: str) -> str:
        """What reading this path must open; a path that does not exist when the job removed it."""
        upper = self.upper(path)
        return upper if real_exists(upper) or self.hidden(path) else path

    def exists(self, path: str) -> bool:
        return real_exists(self.view(path))

    def is_dir(self, path: str) -> bool:
        return real_is_dir(self.view(path))

    def names(self, path: str) -> list[str]:
        """Names in a folder as the job sees it. Raises OSError like listdir."""
        upper = self.upper(path)
        in_upper = real_is_dir(upper)
        if not in_upper and not self.lower_visible(path):
            return list(real.listdir(upper))  # raises
        found = list(real.listdir(upper)) if in_upper else []
        if self.lower_visible(path) and (real_is_dir(path) or not in_upper):
            marks = real_is_dir(self.gone + path)
            seen = set(found)
            for name in real.listdir(path):
                if name not in seen and not (marks and real_exists(f"{self.gone}{path}/{name}/.gone")):
                    found.append(name)
        return found

    # --- changes

    def make_folders(self, path: str) -> None:
        """The folder in the sandbox, with those above it."""
        missing = []
        upper = self.upper(path)
        while not real_is_dir(upper):
            missing.append(upper)
            upper = posixpath.dirname(upper)
        for folder in reversed(missing):
            try:
                real.mkdir(folder)
            except FileExistsError:
                pass

    def parent_for_write(self, path: str) -> None:
        """Make the parent in the sandbox. Raises as the kernel does when the job sees no such folder."""
        parent = posixpath.dirname(path)
        if not self.is_dir(parent):
            code = errno.ENOTDIR if self.exists(parent) else errno.ENOENT
            raise OSError(code, os.strerror(code), path)
        self.make_folders(parent)

    def for_write(self, path: str, keep: bool, exclusive: bool = False) -> str:
        """The file to open instead. `keep`: its content matters, so it is copied up first."""
        for _ in range(40):
            if exclusive and self.exists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            if self.is_dir(path):
                return self.view(path)
            self.parent_for_write(path)
            upper = self.upper(path)
            target = real_realpath(upper)
            if target == upper:
                break
            # A link made by the job: follow it, so that the write does not leave the sandbox.
            path = self.logical(target)
            if self.policy(path) != KEPT and not target.startswith(self.files + "/"):
                return target
        else:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if keep and not real_exists(upper) and self.lower_visible(path):
            self.copy_up(path)
        return upper

    def copy_up(self, path: str) -> None:
        """Copy a real file into the sandbox; the first of several processes wins."""
        upper = self.upper(path)
        scratch = f"{upper}.{os.getpid()}.{threading.get_ident()}.copy"
        copy_file(path, scratch)
        try:
            real.link(scratch, upper)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            if not real_exists(upper):
                real.rename(scratch, upper)
                return
        real.unlink(scratch)

    def hide(self, path: str) -> None:
        """The job no longer sees the real file or folder."""
        folder = self.gone + path
        missing = []
        while not real_is_dir(folder):
            missing.append(folder)
            folder = posixpath.dirname(folder)
        for name in reversed(missing):
            try:
                real.mkdir(name)
            except FileExistsError:
                pass
        os.close(real.open(f"{self.gone}{path}/.gone", os.O_WRONLY | os.O_CREAT, 0o644))

    def copy_tree(self, path: str, target: str) -> None:
        """Copy what the job sees at `path` to the plain path `target`."""
        source = self.view(path)
        if real_is_link(source):
            real.symlink(real.readlink(source), target)
        elif self.is_dir(path):
            if not real_is_dir(target):
                real.mkdir(target)
            for name in self.names(path):
                self.copy_tree(posixpath.join(path, name), posixpath.join(target, name))
        else:
            copy_file(source, target)


def copy_file(source: str, target: str) -> None:
    """Content and mode; shares blocks where the file system can."""
    mode = stat_module.S_IMODE(real.stat(source).st_mode) | 0o200
    reading = real.open(source, os.O_RDONLY)
    try:
        writing = real.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            try:
                fcntl.ioctl(writing, _FICLONE, reading)
            except OSError:
                while block := os.read(reading, 1 << 20):
                    view = memoryview(block)
                    while view:
                        view = view[os.write(writing, view) :]
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _free_folders() -> list[str]:
    """Temporary files, devices and caches, absolute; most from the environment."""
    temporary = [os.environ[n] for n in ("TMPDIR", "TEMP", "TMP") if os.environ.get(n, "").startswith("/")]
    found = [*_FREE_SYSTEM, *temporary, "/tmp"]
    # A project that lies in /tmp itself must not catch the compilers' caches.
    for name in {os.environ.get("USER") or "root", os.environ.get("LOGNAME") or "root", "root"}:
        found += [posixpath.join(folder, f"torchinductor_{name}") for folder in (*temporary, "/tmp")]
    home = os.path.expanduser("~")
    if home.startswith("/") and home != "/":
        found += [posixpath.join(home, name) for name in _HOME_CACHES]
    for name, value in os.environ.items():
        if (
            (name in _CACHE_VARIABLES or _CACHE_VARIABLE.search(name))
            and value.startswith("/")
            and value != "/"
        ):
            found.append(value)
    return found
