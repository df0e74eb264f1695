"""Copies the job's output to train.log and, if wanted, to our own streams, as it comes."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from autotune.observe.bounded_log import BoundedLog
from autotune.observe.secrets import scrub

if TYPE_CHECKING:
    from autotune.observe.spec import Echo

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")


class Tee:
    """Two reader threads; the log keeps the lines of both streams whole and in the order they came."""

    def __init__(self, log: Path, echo: Echo) -> None:
        self._log = BoundedLog(log)
        self._lock = threading.Lock()
        self._echo = echo
        self._threads: list[threading.Thread] = []
        self.fault: OSError | None = None  # the log could not be written
        self.last_output_s = 0.0  # monotonic clock

    def follow(self, stream: IO[bytes], to_stderr: bool) -> None:
        """Copy one stream until its end."""
        target = None
        if self._echo != "none":
            target = 2 if to_stderr or self._echo == "stderr" else 1
        thread = threading.Thread(target=self._copy, args=(stream.fileno(), target), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _copy(self, source: int, target: int | None) -> None:
        pending = b""
        while True:
            try:
                block = os.read(source, 65536)
            except OSError:
                block = b""
            if not block:
                self._write(pending)
                return
            self.last_output_s = time.monotonic()
            pending += block
            end = max(pending.rfind(b"\n"), pending.rfind(b"\r")) + 1
            if end == 0 and len(pending) > 65536:
                end = len(pending)
            if end:
                self._write(pending[:end])
                pending = pending[end:]
            if target is not None:
                try:
                    (sys.stdout if target == 1 else sys.stderr).flush()
                    os.write(target, block)
                except (OSError, ValueError):
                    target = None

    def _write(self, block: bytes) -> None:
        with self._lock:
            try:
                if self.fault is None and not self._log.closed:
                    self._log.write(_scrubbed(block))
            except OSError as fault:
                self.fault = fault  # the reader goes on: the job must not block on a full pipe

    @property
    def left_out(self) -> int:
        """Bytes of the output that are not in the log: it keeps the beginning and the end."""
        return self._log.left_out

    def close(self, timeout_s: float = 5.0) -> None:
        """Wait for the streams to end."""
        for thread in self._threads:
            thread.join(timeout_s)
        with self._lock:
            self._log.close()


def _scrubbed(block: bytes) -> bytes:
    """Whole lines without credentials; bytes that are no text stay as they are."""
    return scrub(block.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def last_lines(log: Path, count: int = 40) -> list[str]:
    """The end of a log as plain lines: no colours, of a progress bar only its last state."""
    try:
        with open(log, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 65536))
            text = file.read(65536).decode("utf-8", "replace")
    except OSError:
        return []
    lines = [_CONTROL.sub("", line.rstrip("\r").rsplit("\r", 1)[-1]).rstrip() for line in text.split("\n")]
    return [line for line in lines if line][-count:]
