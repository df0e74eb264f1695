"""Damaged and random input: never a crash, never a hang, never a wrong total without a warning."""

from __future__ import annotations

import gzip
import json
import random
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.errors import InputError
from autotune.trace import source
from autotune.trace.reader import read_trace
from autotune.trace.summary import summarize
from tests.trace.layouts import dumps, events, metadata
from tests.trace.recorded import MI300X, PACKED, SAMPLED0, TABLES, path

EXPLAINED = {
    "control_characters", "invalid_utf8", "invalid_escapes", "non_finite_numbers", "odd_field_types",
    "not_an_object", "unreadable_time", "clipped_time", "negative_duration", "over_long_events",
}  # fmt: skip


def _exact(text: str) -> Decimal | float:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of twenty digits
        return float(text)


def by_the_book(text: bytes) -> dict[str, Any] | list[Any] | None:
    """The text as the standard library reads it; None when it is no JSON."""
    try:
        value: dict[str, Any] | list[Any] = json.loads(text.decode("utf-8-sig"), parse_float=_exact)
    except (ValueError, RecursionError):
        return None
    return value


def kernel_total(value: Any) -> tuple[int, int] | None:
    """Number of events and summed kernel nanoseconds; None when a time is no plain number."""
    items = value["traceEvents"] if isinstance(value, dict) else value
    total = 0
    for item in items:
        if isinstance(item, dict) and item.get("ph") == "X" and item.get("cat") == "kernel":
            dur = item.get("dur", 0)
            if isinstance(dur, bool) or not isinstance(dur, int | Decimal):
                return None
            total += int((Decimal(dur) * 1000).to_integral_value())
    return len(items), total


def check(file: Path, text: bytes) -> str:
    """Read and summarise; returns `refused` or `read`."""
    try:
        trace = read_trace(file)
    except InputError as fault:
        assert "trace" in str(fault) or "byte" in str(fault)
        return "refused"
    found = trace.event_count, int(trace.gpu.dur[trace.gpu.kind == 0].sum())
    repaired = bool(+trace.repairs)
    codes = {warning.code for warning in summarize([file], tables_dir=TABLES).ranks[0].validity.warnings}
    value = by_the_book(text)
    if value is None:
        assert repaired, "the standard library refuses this text"
    else:
        expected = kernel_total(value)
        assert found == expected or codes & EXPLAINED, (found, expected)
    return "read"


def mutate(text: bytes, choose: random.Random) -> bytes:
    """One to three small accidents."""
    data = bytearray(text)
    for _ in range(choose.randint(1, 3)):
        at = choose.randrange(len(data) or 1)
        kind = choose.randrange(8)
        if kind == 0:
            data[at : at + 1] = bytes([choose.randrange(256)])
        elif kind == 1:
            del data[at : at + choose.randint(1, 40)]
        elif kind == 2:
            data[at:at] = bytes(choose.randrange(256) for _ in range(choose.randint(1, 4)))
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            data[at:at] = data[at : at + choose.randint(1, 200)]
        elif kind == 5:
            data[at:at] = choose.choice(
                [b"null", b"NaN", b"-", b"1e999", b'"', b"}", b"]", b",", b"\\", b"{"]
            )
        elif kind == 6:
            data = bytearray(bytes(data).replace(b'"dur"', choose.choice([b'"durr"', b'"ts"', b'"DUR"']), 1))
        else:
            digits = [index for index in range(at, min(at + 200, len(data))) if 48 <= data[index] < 58]
            for index in digits[: choose.randint(1, 5)]:
                data[index] = choose.choice(b"0123456789")
        if not data:
            break
    return bytes(data)


def seeds() -> list[bytes]:
    """Small whole traces: the hand-made one in two layouts, and slices of recorded ones."""
    found = [dumps({**metadata(), "traceEvents": events()}).encode()]
    found.append(dumps({"traceEvents": events("17"), **metadata()}, comma=",\n  ", colon=":").encode())
    for name in (SAMPLED0, MI300X, PACKED):
        whole = json.loads(gzip.decompress(path(name).read_bytes()))
        kinds: dict[str, int] = {}
        part = []
        for item in whole["traceEvents"]:
            kind = item.get("cat", "")
            kinds[kind] = kinds.get(kind, 0) + 1
            if kinds[kind] <= 6:
                part.append(item)
        found.append(json.dumps({**whole, "traceEvents": part}).encode())
    return found


@pytest.mark.parametrize("inputs", [1_200, pytest.param(12_000, marks=pytest.mark.full)])
def test_mutated_traces(inputs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(inputs)
    starts = seeds()
    outcomes = {"refused": 0, "read": 0}
    file = tmp_path / "trace.json"
    for number in range(inputs):
        monkeypatch.setattr(source, "BLOCK_BYTES", choose.choice([1 << 20, 997, 4096]))
        text = mutate(starts[number % len(starts)], choose)
        packed = number % 7 == 6
        file.write_bytes(gzip.compress(text, 1) if packed else text)
        outcomes[check(file, text)] += 1
    assert min(outcomes.values()) > inputs // 20, outcomes


def test_damaged_gzip(tmp_path: Path) -> None:
    choose = random.Random(5)
    packed = gzip.compress(seeds()[0])
    file = tmp_path / "trace.json.gz"
    for _ in range(200):
        file.write_bytes(mutate(packed, choose))
        try:
            read_trace(file)
        except InputError:
            continue


scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(
    ["ph", "cat", "name", "ts", "dur", "pid", "tid", "args", "id", "correlation", "stream", "bytes"]
)
words = st.sampled_from(["X", "kernel", "cpu_op", "cuda_runtime", "gpu_memcpy", "ProfilerStep#1", 7, 0.5])
fields = st.dictionaries(keys, values | words, max_size=9)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    items=st.lists(fields, max_size=8),
    block=st.sampled_from([1 << 20, 64]),
    indent=st.sampled_from([None, 1]),
)
def test_random_events(
    items: list[dict[str, Any]], block: int, indent: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "random.json"
    good = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "dur": 5}
    text = json.dumps({"traceEvents": [*items, good]}, indent=indent).encode()
    file.write_bytes(text)
    before, source.BLOCK_BYTES = source.BLOCK_BYTES, block
    try:
        assert check(file, text) in ("read", "refused")
    finally:
        source.BLOCK_BYTES = before


@pytest.mark.parametrize("depth", [50, 5_000, 200_000])
def test_deep_nesting(depth: int, tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    deep = "[" * depth + "]" * depth
    kernel = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2}'
    file.write_text(f'{{"traceEvents": [{kernel}, {{"ph": "i", "args": {{"a": {deep}}}}}]}}')
    try:
        assert len(read_trace(file).gpu) == 1
    except InputError as fault:
        assert "byte" in str(fault)
