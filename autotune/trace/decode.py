"""Decode a run of trace events into small typed objects.

The typed decoder is the fast path. Text or types it refuses go to the tolerant path, which repairs what
has one meaning (raw control characters, NaN, a number in quotes) and counts what it had to repair.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from autotune.trace.structure import cut, string_mask

NO_RAW = Raw(b"")


class Args(Struct, gc=False, frozen=True):
    """The arguments the engine reads; everything else in `args` is skipped unparsed."""

    correlation: int = -1
    external: int = field(name="External id", default=-1)
    stream: int = -1
    device: int = -1
    bytes: int = -1
    sequence: int = field(name="Sequence number", default=-1)
    forward_thread: int = field(name="Fwd thread id", default=-1)
    dims: Raw = field(name="Input Dims", default=NO_RAW)
    types: Raw = field(name="Input type", default=NO_RAW)
    concrete: Raw = field(name="Concrete Inputs", default=NO_RAW)
    collective: Raw = field(name="Collective name", default=NO_RAW)
    nelems_in: Raw = field(name="In msg nelems", default=NO_RAW)
    nelems_out: Raw = field(name="Out msg nelems", default=NO_RAW)
    group_size: Raw = field(name="Group size", default=NO_RAW)
    dtype: Raw = NO_RAW
    group_name: Raw = field(name="Process Group Name", default=NO_RAW)
    group_ranks: Raw = field(name="Process Group Ranks", default=NO_RAW)
    allocated: Raw = field(name="Total Allocated", default=NO_RAW)
    reserved: Raw = field(name="Total Reserved", default=NO_RAW)
    device_type: Raw = field(name="Device Type", default=NO_RAW)
    device_id: Raw = field(name="Device Id", default=NO_RAW)
    name: Raw = NO_RAW
    labels: Raw = NO_RAW


NO_ARGS = Args()


class Event(Struct, gc=False):
    """One entry of `traceEvents`."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: int | float = 0
    dur: int | float = -1
    pid: int | str = 0
    tid: int | str = 0
    args: Args = NO_ARGS


class Stamp(Struct, gc=False):
    """The time stamps of one event as text, for stamps a double cannot hold."""

    ts: Raw = NO_RAW
    dur: Raw = NO_RAW


_EVENTS = msgspec.json.Decoder(list[Event], strict=False)
_STAMPS = msgspec.json.Decoder(list[Stamp])
_ANY = msgspec.json.Decoder()
_SPACES = bytes(0x20 if code < 0x20 else code for code in range(256))
_BARE = re.compile(rb"(?<![\w.])(-?(?:NaN|nan|Infinity|inf|Inf)|-?nan\(\w*\))(?![\w.])")
_BAD_ESCAPE = re.compile(rb'\\(?:u[dD][89a-fA-F][0-9a-fA-F]{2}|u(?![0-9a-fA-F]{4})|[^"\\/bfnrtu])')
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\\\|" + _BAD_ESCAPE.pattern)


class Undecodable(Exception):
    """The text is no JSON even after repair; `offset` counts from the start of the text."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason


def fast(body: bytes) -> list[Event]:
    """Events of an array body (no brackets); raises msgspec.DecodeError."""
    return _EVENTS.decode(b"[" + body + b"]")


def is_utf8(body: bytes) -> bool:
    """Whether the text is valid UTF-8, in the parts the decoder skips as well."""
    if body.isascii():
        return True
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def stamps(body: bytes) -> list[Stamp]:
    """The raw time stamps of the same body."""
    return _STAMPS.decode(b"[" + body + b"]")


def clean_text(body: bytes) -> tuple[bytes, Counter[str]]:
    """The body with control characters, bad UTF-8, bad escapes and bare NaN made decodable, and counts."""
    repairs: Counter[str] = Counter()
    inside = string_mask(body)
    spaced = body.translate(_SPACES)
    if spaced != body:
        import numpy as np

        before, after = np.frombuffer(body, np.uint8), np.frombuffer(spaced, np.uint8)
        white = np.isin(before, (9, 10, 13))  # fine between tokens, not inside strings
        repairs["control_characters"] = int(((before != after) & (inside | ~white)).sum())
        body = spaced
    if not is_utf8(body):
        body = body.decode("utf-8", "replace").encode("utf-8")
        repairs["invalid_utf8"] += 1
    if b"\\" in body:
        body, count = _mend_escapes(body)
        repairs["invalid_escapes"] += count
    if re.search(rb"nan|inf", body, re.IGNORECASE):
        body, count = _mend_bare(body)
        repairs["non_finite_numbers"] += count
    return body, +repairs


def _mend_escapes(body: bytes) -> tuple[bytes, int]:
    count = 0

    def mend(match: re.Match[bytes]) -> bytes:
        nonlocal count
        text = match.group()
        if text == b"\\\\" or len(text) == 12:  # a whole escape, or a whole surrogate pair
            return text
        count += 1
        return b"?" if len(text) == 6 else b"\\" + text

    return _PAIR.sub(mend, body), count


def _mend_bare(body: bytes) -> tuple[bytes, int]:
    inside = string_mask(body)
    count = 0

    def mend(match: re.Match[bytes]) -> bytes:
        nonlocal count
        if inside[match.start()]:
            return match.group()
        count += 1
        return b"null"

    return _BARE.sub(mend, body), count


def tolerant(body: bytes) -> tuple[list[Event], bytes, Counter[str]]:
    """Events of a body the fast path refused, the repaired body (same events) and what was repaired.

    Raises Undecodable when a part of the text cannot be read at all.
    """
    body, repairs = clean_text(body)
    try:
        return fast(body), body, repairs
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, RecursionError) as fault:
        raise Undecodable(*_locate(body, fault)) from None
    events: list[Event] = []
    kept: list[bytes] = []
    bounds = [-1, *cut(body).commas.tolist(), len(body)]
    for start, end in itertools.pairwise(bounds):
        piece = body[start + 1 : end]
        try:
            event = fast(piece)
        except (msgspec.DecodeError, RecursionError):
            event = [_coerce(_untyped(piece, start + 1), repairs)]
        events.extend(item for item in event if item is not None)
        kept.extend([piece] if event and event[0] is not None else [])
    return events, b",".join(kept), repairs


def _untyped(piece: bytes, offset: int) -> Any:
    try:
        return _ANY.decode(piece)
    except (msgspec.DecodeError, RecursionError) as fault:
        at, reason = _locate(piece, fault)
        raise Undecodable(offset + at, reason) from None


def _locate(body: bytes, fault: BaseException) -> tuple[int, str]:
    text = str(fault)
    found = re.search(r"\(byte (\d+)\)", text)
    reason = re.sub(r"\s*\(byte \d+\)", "", text) or type(fault).__name__
    return (max(int(found.group(1)) - 1, 0) if found else len(body)), reason


def _coerce(value: Any, repairs: Counter[str]) -> Any:
    """An Event from an untyped object with odd field types; None when it is not usable as an event."""
    if not isinstance(value, dict):
        repairs["not_an_object"] += 1
        return None
    stamp = _number(value.get("ts", 0))
    length = _number(value.get("dur", -1))
    if stamp is None or length is None:
        repairs["unreadable_time"] += 1
        return None
    repairs["odd_field_types"] += 1
    args = value.get("args")
    return Event(
        ph=_text(value.get("ph")),
        cat=_text(value.get("cat")),
        name=_text(value.get("name")),
        ts=stamp,
        dur=length,
        pid=_identity(value.get("pid")),
        tid=_identity(value.get("tid")),
        args=_coerce_args(args) if isinstance(args, dict) else NO_ARGS,
    )


def _coerce_args(args: dict[str, Any]) -> Args:
    values: dict[str, Any] = {}
    for item in msgspec.structs.fields(Args):
        if item.encode_name not in args:
            continue
        value = args[item.encode_name]
        if item.type is int:
            number = _number(value)
            values[item.name] = int(number) if number is not None else -1
        else:
            values[item.name] = Raw(msgspec.json.encode(value))
    return Args(**values)


def _number(value: Any) -> int | float | None:
    if isinstance(value, str):
        try:
            value = int(value) if value.strip().lstrip("+-").isdigit() else float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _identity(value: Any) -> int | str:
    return value if isinstance(value, int | str) else _text(value)


def raw_value(raw: Raw) -> Any:
    """The value of an argument kept as text; None when absent or unreadable."""
    text = bytes(raw)
    if not text:
        return None
    try:
        return _ANY.decode(text)
    except msgspec.DecodeError:
        return None
