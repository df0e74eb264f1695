"""Where everything observed goes: one JSON line per event, written without buffering at every step.

Before a process becomes a rank its events wait in memory. `urgent` events are written at once; in a process
that never becomes a rank they go to raw/process-<pid>/. A write that fails silences the sink, never the
job.
"""

from __future__ import annotations

import json
import os
import threading
import time
import traceback
from typing import Any

from .redaction import scrub

_NUMBERS_ONLY = {"step", "device_step", "counters", "window", "memory", "segment", "parity_step"}
_MAX_WAITING = 20_000
_MAX_FAULTS = 30


def _plain(value: object) -> object:
    """JSON form of what json does not know: sets and tuples as lists, anything else as its type's name."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return type(value).__name__


class Sink:
    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.folder: str | None = None
        self.rank: int | None = None
        self.faults: list[str] = []
        self.fault_count = 0
        self.broken = False
        self._fd: int | None = None
        self._inode: tuple[int, ...] = ()  # inode and device of the event file
        self._lines: list[bytes] = []
        self._lock = threading.RLock()

    def emit(self, kind: str, fields: dict[str, Any], urgent: bool = False) -> None:
        text = json.dumps({"event": kind, **fields}, separators=(",", ":"), default=_plain)
        line = (text if kind in _NUMBERS_ONLY else scrub(text)).encode() + b"\n"
        with self._lock:
            if urgent and self.rank is None:
                self._write_now(line)  # what waits belongs to the rank this process may become
                return
            if self._fd is None and len(self._lines) >= _MAX_WAITING:
                return
            self._lines.append(line)
            if urgent:
                self.flush()

    def _write_now(self, line: bytes) -> None:
        """One line to raw/process-<pid>/."""
        try:
            folder = os.path.join(self.raw, f"process-{os.getpid()}")
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, "events.jsonl")
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)
            try:
                os.write(fd, line)
            finally:
                os.close(fd)
        except OSError:
            self.broken = True

    def open_rank(self, rank: int) -> None:
        """Claim raw/rank-NNNNN (with .1, .2 ... when another process had it) and write what waited."""
        with self._lock:
            waiting = self._lines
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None
            self.rank = rank
            base = os.path.join(self.raw, f"rank-{rank:05d}")
            for attempt in range(1000):
                folder = base if attempt == 0 else f"{base}.{attempt}"
                try:
                    os.makedirs(folder)
                except FileExistsError:
                    continue
                except OSError:
                    self.broken = True
                    return
                self._lines = waiting
                self._open(folder)
                self.flush()
                return

    def _open(self, folder: str) -> None:
        try:
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, "events.jsonl")
            self._fd = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644
            )
            self._inode = os.fstat(self._fd)[1:3]
            self.folder = folder
        except OSError:
            self.broken = True

    def flush(self) -> None:
        with self._lock:
            if self._fd is None or not self._lines:
                return
            data = b"".join(self._lines)
            self._lines = []
            try:
                self._own_descriptor()
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                self.broken = True

    def _own_descriptor(self) -> None:
        """The job may have closed every descriptor; the number may be a file of its own by now."""
        try:
            if self._fd is not None and os.fstat(self._fd)[1:3] == self._inode:
                return
        except OSError:
            pass
        self._fd = None
        if self.folder is not None:
            self._open(self.folder)
        if self._fd is None:
            raise OSError("the event file is gone")

    def fault(self, where: str) -> None:
        """Log the exception being handled; the job never sees it."""
        with self._lock:
            self.fault_count += 1
            if len(self.faults) >= _MAX_FAULTS:
                return
            text = scrub(traceback.format_exc())
            last = text.strip().splitlines()[-1] if text.strip() else ""
            self.faults.append(f"{where}: {last}"[:300])
            folder = self.folder or os.path.join(self.raw, f"process-{os.getpid()}")
            try:
                os.makedirs(folder, exist_ok=True)
                with open(os.path.join(folder, "faults.log"), "a", encoding="utf-8") as file:
                    file.write(f"--- {where}\n{text}\n")
            except OSError:
                pass

    def write_json(self, name: str, value: dict[str, Any], folder: str | None = None) -> None:
        """Atomically write a small file into the rank's folder (or `folder`)."""
        target = folder or self.folder
        if target is None:
            return
        path = os.path.join(target, name)
        temporary = f"{path}.{os.getpid()}.tmp"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(scrub(json.dumps(value, default=_plain)))
            os.replace(temporary, path)
        except OSError:
            self.broken = True

    def sync(self) -> None:
        """Flush down to the disk."""
        self.flush()
        with self._lock:
            if self._fd is not None:
                try:
                    self._own_descriptor()
                    os.fsync(self._fd)
                except OSError:
                    pass

    def after_fork(self) -> None:
        """In a forked child: forget what belongs to the parent.

        What waits still, because the parent is no rank, is the past of the rank that the child may become.
        """
        self._lock = threading.RLock()
        if self.rank is not None:
            self._lines = []
        if self._fd is not None:
            try:
                if os.fstat(self._fd)[1:3] == self._inode:
                    os.close(self._fd)
            except OSError:
                pass
        self._fd = None
        self.folder = None
        self.rank = None
        self.faults = []
        self.fault_count = 0


def now_s() -> float:
    return time.monotonic()
