"""Read one large trace on two CPU cores: a second process decodes its later half ahead of time.

The second process picks a place near the middle that looks like the start of an event, says so at once and
decodes from there. The first one reads from the start; when it arrives there and all it has read parses up
to exactly that place, the place was a real boundary, and the columns of the second are joined on. In every
other case (a wrong guess, any fault in the later half) the first process reads on by itself: result and
errors are those of one process.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from autotune.trace import source
from autotune.trace.build import Part
from autotune.trace.columns import Trace
from autotune.trace.reader import Reader, keep_all

MIN_PLAIN_BYTES = 96 << 20  # below it a second process costs more than it saves
_MAYBE_START = re.compile(rb"\}\s*,\s*(?=\{)")


def usable_cores() -> int:
    """Cores this process may run on; a part of the machine where it is bound to some."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read(path: Path, *, processes: int | None = None, min_plain_bytes: int = MIN_PLAIN_BYTES) -> Trace:
    """Decode one trace file, in two processes when it is large (`processes`: 1, 2, or None for what pays).

    Raises InputError with the byte offset for truncated, damaged or foreign files.
    """
    if processes is None:
        processes = min(2, usable_cores())
    size = source.plain_bytes(path) if processes > 1 else 0
    if processes < 2 or size < min_plain_bytes:
        return Reader(path, keep_all).read()
    try:
        second = _SecondProcess(path, size // 2)
    except OSError:  # no more processes or open files allowed
        return Reader(path, keep_all).read()
    try:
        return _FirstReader(path, size // 2, second).read()
    finally:
        second.close()


@dataclass(frozen=True)
class _Later:
    """The decoded later half, the text after the events, and the size of the whole text."""

    part: Part
    tail: bytes
    plain_bytes: int


class _SecondProcess:
    def __init__(self, path: Path, middle: int) -> None:
        context = get_context("spawn")
        self._answers, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_decode_later, args=(path, middle, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def receive(self) -> Any:
        """The next answer: first the offset where it began, then its half; None after any fault there."""
        try:
            return self._answers.recv()
        except (EOFError, OSError):
            return None

    def close(self) -> None:
        self._answers.close()
        self._process.kill()
        self._process.join()


def _decode_later(path: Path, middle: int, answers: Connection) -> None:
    """Body of the second process. A fault ends it without a word: the first process then meets it itself."""
    import gc

    from autotune.errors import AutotuneError

    gc.disable()  # as in the first process: events hold no cycles
    try:
        reader = _LaterReader(path, keep_all)
        start = reader.skip_to(middle)
        answers.send(start)
        if start is not None:
            answers.send(reader.rest())
    except (AutotuneError, OSError, MemoryError):
        return
    finally:
        answers.close()


class _LaterReader(Reader):
    def skip_to(self, middle: int) -> int | None:
        """Drop the text up to what looks like the first event after `middle`; its offset, or None."""
        while self.offset + len(self.buffer) <= middle:
            self._take(len(self.buffer))
            if not self._more():
                return None
        found = _MAYBE_START.search(self.buffer, max(middle - self.offset, 0))
        if found is None:
            return None
        self._take(found.end())
        return self.offset

    def rest(self) -> _Later:
        tail = self._body()
        return _Later(self.builder.part(), tail, self.offset + len(self.buffer))


class _Joined(Exception):
    """The later half was joined on; carries the text after the events."""

    def __init__(self, tail: bytes) -> None:
        super().__init__()
        self.tail = tail


class _FirstReader(Reader):
    def __init__(self, path: Path, middle: int, second: _SecondProcess) -> None:
        super().__init__(path, keep_all)
        self._ask_from = middle - 2 * source.BLOCK_BYTES
        self._second: _SecondProcess | None = second
        self._start: int | None = None
        self._held = b""  # text past the start of the later half
        self._in_body = False

    def _body(self) -> bytes:
        self._in_body = True
        try:
            return super()._body()
        except _Joined as joined:
            return joined.tail

    def _more(self) -> bool:
        near = self.offset + len(self.buffer) >= self._ask_from
        if self._second is not None and self._start is None and near:
            self._start = self._second.receive()
            if self._start is None or not self._in_body:
                self._second = None
        if self._second is not None and self._start is not None:
            if self.offset + len(self.buffer) == self._start:
                self._join()
                self._second = None
                self.buffer, self._held = self.buffer + self._held, b""
                return bool(self.buffer) or super()._more()
            grown = super()._more()
            excess = self.offset + len(self.buffer) - self._start
            if excess > 0:
                self._held, self.buffer = self.buffer[-excess:], self.buffer[:-excess]
            return grown
        return super()._more()

    def _join(self) -> None:
        """At the start of the later half: join it when all text before it is whole events."""
        body = self.buffer.strip(b" \t\r\n,")
        if body and not self._decode_fast(body):
            return
        self._take(len(self.buffer))
        assert self._second is not None
        later = self._second.receive()
        if isinstance(later, _Later) and self.builder.absorb(later.part):
            self.offset, self.buffer, self._held = later.plain_bytes, b"", b""
            self.ended = True
            raise _Joined(later.tail)
