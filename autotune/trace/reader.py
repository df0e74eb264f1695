"""Read a Kineto / Chrome JSON trace into columns: streaming, bounded memory, any writer's layout.

A chunk is cut where a `}` `,` `{` is seen from the right, then decoded as an array of events. If the
decoder accepts `[` chunk `]`, the cut was a real element boundary: text that starts at a boundary and
parses as a whole array can only end at one. When it refuses, the structural scan decides instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from autotune.errors import InputError, Place
from autotune.trace import decode, source
from autotune.trace.build import TraceBuilder
from autotune.trace.columns import GPU_CATEGORIES, HOST_CATEGORIES, Trace
from autotune.trace.structure import cut

_HEADER_LIMIT = 256 << 20
_ELEMENT_LIMIT = 64 << 20
_WHITE = b" \t\r\n"
_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_CLOSING_TRIES = 200


def keep_all(name: str) -> bool:
    """Keep the recorded inputs of every op."""
    return True


def read_trace(path: Path, *, keep_shape: Callable[[str], bool] = keep_all) -> Trace:
    """Decode one trace file. `keep_shape(op name)` says which ops keep their recorded inputs.

    Raises InputError with the byte offset for truncated, damaged or foreign files.
    """
    return Reader(path, keep_shape).read()


class Reader:
    """One pass over one file; `read` may be called once."""

    def __init__(self, path: Path, keep_shape: Callable[[str], bool]) -> None:
        self.path = path
        self.builder = TraceBuilder(keep_shape)
        self.blocks: Iterator[bytes] = source.blocks(path, source.BLOCK_BYTES)
        self.buffer = b""
        self.offset = 0  # of the start of the buffer in the plain text
        self.ended = False

    def read(self) -> Trace:
        import gc

        was_on = gc.isenabled()
        gc.disable()  # events hold no cycles; collecting them costs more than decoding
        try:
            head = self._header()
            tail = self._body()
            return self._finish(head, tail)
        finally:
            if was_on:
                gc.enable()

    def _more(self) -> bool:
        """Append a block to the buffer; False at the end of the file."""
        if self.ended:
            return False
        block = next(self.blocks, None)
        if block is None:
            self.ended = True
            return False
        self.buffer = self.buffer + block if self.buffer else block
        return True

    def _grow(self) -> bool:
        """Double the buffer, so that scanning it again stays linear in all; False at the end of the file."""
        wanted = max(2 * len(self.buffer), 1)
        if wanted > 2 * _ELEMENT_LIMIT:
            raise self._fail(
                f"not a trace: one entry of traceEvents is longer than {_ELEMENT_LIMIT >> 20} MiB", 0
            )
        grown = False
        while len(self.buffer) < wanted and self._more():
            grown = True
        return grown

    def _take(self, count: int) -> None:
        self.buffer = self.buffer[count:]
        self.offset += count

    def _fail(self, what: str, at: int, hint: str | None = None) -> InputError:
        return InputError(what, where=self._place(at), hint=hint, code="trace-broken")

    def _cut_short(self, what: str, at: int, hint: str) -> InputError:
        return InputError(what, where=self._place(at), hint=hint, code="trace-truncated")

    def _foreign(self, what: str, hint: str | None = None) -> InputError:
        return InputError(what, where=self._place(0), hint=hint, code="trace-foreign")

    def _place(self, at: int) -> Place:
        return Place(str(self.path), byte_offset=self.offset + at)

    def _header(self) -> bytes | None:
        """Skip to the first event. The text before it, or None for a bare array of events."""
        searched = 0
        while True:
            grown = self._more()
            if searched == 0:
                stripped = self.buffer.lstrip(b"\xef\xbb\xbf" + _WHITE)
                if stripped[:1] == b"[":
                    self._take(len(self.buffer) - len(stripped) + 1)
                    return None
                self._take(len(self.buffer) - len(stripped))
            for match in _KEY.finditer(self.buffer, searched):
                head = self.buffer[: match.start()]
                if _object(head + b'"traceEvents":null}') is not None:
                    self._take(match.end())
                    return head
            if not grown:
                break
            if len(self.buffer) > _HEADER_LIMIT:
                raise self._foreign("not a trace: no traceEvents in the first 256 MiB")
            searched = max(len(self.buffer) - 64, 1)
        if not self.buffer:
            raise InputError("not a trace: only white space", where=self._place(0), code="trace-empty")
        try:
            value = msgspec.json.decode(decode.clean_text(self.buffer)[0])
        except (msgspec.DecodeError, RecursionError) as fault:
            at, reason = decode._locate(self.buffer, fault)
            truncated = "truncated" in reason.lower()
            hint = "record the trace again, or copy it again"
            if truncated:
                raise self._cut_short("truncated before the first event", at, hint) from None
            raise self._fail(f"broken JSON ({reason})", at, hint) from None
        keys = ", ".join(sorted(map(str, value))[:6]) if isinstance(value, dict) else type(value).__name__
        without = "whose traceEvents is no list" if "traceEvents" in keys else "without traceEvents"
        raise self._foreign(
            f"not a trace: valid JSON {without} (found {keys or 'an empty object'})",
            "pass the JSON that prof.export_chrome_trace() writes",
        )

    def _body(self) -> bytes:
        """Decode all events; returns the text after the closing bracket."""
        while True:
            self._strip()
            if not self.buffer and not self._more():
                raise self._truncated(0)
            self._strip()
            if self.buffer[:1] == b"]":
                self._take(1)
                break
            end = self._last_boundary()
            if end is not None and self._decode_fast(self.buffer[:end]):
                self._take(end)
                self._more()
            elif self._grow():
                if not self._slow():
                    break
            elif self._ends_here() or not self._slow():
                break
        while self._more():
            if len(self.buffer) > _HEADER_LIMIT:
                raise self._fail("not a trace: more than 256 MiB after the last event", 0)
        return self.buffer

    def _strip(self) -> None:
        """Drop white space and the comma between elements."""
        stripped = self.buffer.lstrip(_WHITE + b",")
        self._take(len(self.buffer) - len(stripped))

    def _last_boundary(self) -> int | None:
        """End of the last element that is followed by another one, guessed from the right."""
        data = self.buffer
        at = len(data)
        for _ in range(4096):
            at = data.rfind(b"{", 0, at)
            if at <= 0:
                return None
            before = data[max(at - 64, 0) : at].rstrip(_WHITE)
            if before.endswith(b","):
                before = before[:-1].rstrip(_WHITE)
                if before.endswith(b"}"):
                    return max(at - 64, 0) + len(before)
        return None

    def _decode_fast(self, body: bytes) -> bool:
        try:
            events = decode.fast(body)
        except (msgspec.DecodeError, RecursionError):
            return False
        if not decode.is_utf8(body):
            self.builder.repairs["invalid_utf8"] += 1
        self.builder.add(events, lambda: _texts(body))
        return True

    def _ends_here(self) -> bool:
        """At the end of the file: try brackets that may close the array; True when one is proven to."""
        data = self.buffer
        at = len(data)
        for _ in range(_CLOSING_TRIES):
            at = data.rfind(b"]", 0, at)
            if at < 0:
                return False
            if not data[max(at - 64, 0) : at].rstrip(_WHITE).endswith(b"}"):
                continue
            tail = data[at + 1 :].strip(_WHITE)
            if (tail and _object(b'{"traceEvents":null' + tail) is None) or not self._decode_fast(data[:at]):
                continue
            self._take(at + 1)
            return True
        return False

    def _slow(self) -> bool:
        """Cut by structure and decode with repair; False when the array ended."""
        found = cut(self.buffer)
        end = found.close if found.close is not None else None
        closing = end is not None
        if end is None:
            if found.commas.size:
                end = int(found.commas[-1])
            elif self._grow():
                return True
            else:
                raise self._truncated(len(self.buffer))
        body = self.buffer[:end]
        if body.strip(_WHITE):
            try:
                events, mended, repairs = decode.tolerant(body)
            except decode.Undecodable as fault:
                raise self._fail(
                    f"broken JSON ({fault.reason})", fault.offset, "record the trace again"
                ) from None
            self.builder.repairs.update(repairs)
            self.builder.add(events, lambda: _texts(mended))
        self._take(end + 1)
        return not closing

    def _truncated(self, at: int) -> InputError:
        return self._cut_short(
            f"truncated: the file ends inside traceEvents, after {self.builder.events:,} events",
            at,
            "let the profiler finish writing, or copy the file again",
        )

    def _finish(self, head: bytes | None, tail: bytes) -> Trace:
        metadata: dict[str, Any] = {}
        if head is not None:
            metadata.update(self._metadata(head + b'"traceEvents":null}') or {})
            rest = tail.strip(_WHITE)
            after = self._metadata(b'{"traceEvents":null' + rest)
            if after is None:
                self._refuse_second(rest)
                at, hint = len(self.buffer), "copy the file again, or record the trace again"
                if not rest.endswith(b"}"):
                    raise self._cut_short("truncated after the last event", at, hint)
                raise self._fail("broken JSON after the last event", at, hint)
            metadata.update(after)
        elif tail.strip(_WHITE):
            self._refuse_second(tail)
            raise self._fail("text after the end of the events", 0, "copy the file again")
        metadata.pop("traceEvents", None)
        trace = self.builder.finish(metadata, self.offset + len(self.buffer))
        self._refuse_useless(trace)
        return trace

    def _refuse_second(self, rest: bytes) -> None:
        if _KEY.search(rest) or re.match(rb"\s*\[\s*\{", rest):
            raise self._fail("several traces in one file", 0, "pass each as a file of its own")

    def _metadata(self, text: bytes) -> dict[str, Any] | None:
        """Top-level keys around the events; repairs are counted."""
        value = _object(text)
        if value is not None:
            self.builder.repairs.update(decode.clean_text(text)[1] if _needs_repair(text) else {})
        return value

    def _refuse_useless(self, trace: Trace) -> None:
        known = sum(
            number
            for (phase, category), number in trace.counts.items()
            if phase == "X" and (category in HOST_CATEGORIES or category in GPU_CATEGORIES)
        )
        if known:
            return
        if trace.event_count == 0:
            lost = sum(trace.repairs[code] for code in ("not_an_object", "unreadable_time"))
            why = f": none of its {lost:,} entries is an event with a readable time" if lost else ""
            raise InputError(f"the trace holds no events{why}", where=str(self.path), code="trace-empty")
        seen = Counter(category or "none" for _, category in trace.counts)
        raise InputError(
            f"not a torch.profiler trace: none of its {trace.event_count:,} events is a profiler event "
            f"(categories: {', '.join(sorted(seen)[:6])})",
            where=str(self.path),
            hint="pass the JSON that prof.export_chrome_trace() writes",
            code="trace-foreign",
        )


def _object(text: bytes) -> dict[str, Any] | None:
    """The JSON object, repaired when needed; None when it is none."""
    try:
        value = msgspec.json.decode(decode.clean_text(text)[0] if _needs_repair(text) else text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _needs_repair(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return True
    return False


def _texts(body: bytes) -> tuple[list[bytes], list[bytes]]:
    stamps = decode.stamps(body)
    return [bytes(item.ts) or b"0" for item in stamps], [bytes(item.dur) for item in stamps]
