"""A log that keeps its beginning and its end: a job that prints for days does not fill the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

HEAD_BYTES = 8 << 20
TAIL_BYTES = 8 << 20


class BoundedLog:
    """Unlimited up to `head + 2 * tail` bytes; then all but the head and the last `tail` bytes are taken out.

    A line in their place says how much is missing. The file can be read at any time.
    """

    def __init__(self, path: Path, head: int | None = None, tail: int | None = None) -> None:
        self._file: BinaryIO = open(path, "w+b", buffering=0)  # noqa: SIM115
        self._head = HEAD_BYTES if head is None else head
        self._tail = TAIL_BYTES if tail is None else tail
        self._size = 0  # of the file
        self._kept = 0  # end of the head, known once something was left out
        self.left_out = 0  # bytes

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, block: bytes) -> None:
        """Append whole lines. Raises OSError."""
        data = memoryview(block)
        while data:
            written = self._file.write(data) or 0
            self._size += written
            data = data[written:]
        if self._size > self._head + 2 * self._tail:
            self._shorten()

    def _shorten(self) -> None:
        """Take the middle out, at line ends where there are any near."""
        fd = self._file.fileno()
        if not self._kept:
            start = os.pread(fd, self._head, 0)
            self._kept = start.rfind(b"\n") + 1 or len(start)
        notice_at = self._kept
        old_notice = len(self._notice()) if self.left_out else 0
        from_at = self._size - self._tail
        last = os.pread(fd, self._tail, from_at)
        cut = last.find(b"\n", 0, 1 << 16) + 1
        self.left_out += from_at + cut - (notice_at + old_notice)
        rest = self._notice() + last[cut:]
        os.ftruncate(fd, notice_at)
        self._file.seek(notice_at)
        self._size = notice_at
        while rest:
            written = self._file.write(rest) or 0
            self._size += written
            rest = rest[written:]

    def _notice(self) -> bytes:
        return f"\n[autotune: {self.left_out} bytes of the output were left out here]\n\n".encode()

    def close(self) -> None:
        self._file.close()
