"""The reader: any layout gives the same columns; what cannot be read is refused with place and reason."""

from __future__ import annotations

import gzip
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import InputError
from autotune.trace import source
from autotune.trace.columns import Trace
from autotune.trace.reader import read_trace
from tests.trace.layouts import EPOCH_US, dumps, events, metadata
from tests.trace.recorded import SAMPLED0, path


def write(folder: Path, text: str | bytes, name: str = "trace.json") -> Path:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def digest(trace: Trace) -> dict[str, Any]:
    """Everything the columns hold, in a form that can be compared."""
    host, gpu, names = trace.host, trace.gpu, trace.names
    return {
        "host": sorted(
            (int(t), int(d), names[n], int(k), trace.threads[th][1], int(link), int(f), int(s) >= 0)
            for t, d, n, k, th, link, f, s in zip(
                host.ts, host.dur, host.name, host.kind, host.thread, host.link, host.forward, host.sequence,
                strict=True,
            )
        ),
        "gpu": sorted(
            (int(t), int(d), names[n], int(k), int(s), int(c), int(b))
            for t, d, n, k, s, c, b in zip(
                gpu.ts, gpu.dur, gpu.name, gpu.kind, gpu.stream, gpu.correlation, gpu.bytes, strict=True
            )
        ),
        "memory": trace.memory.allocated.tolist(),
        "overhead": trace.overhead.dur.tolist(),
        "window": trace.window_ns,
        "counts": dict(trace.counts),
        "events": trace.event_count,
        "shapes": [(json.loads(s.dims), json.loads(s.types)) for s in trace.shapes if s.dims],
        "rank": trace.metadata.get("distributedInfo"),
    }  # fmt: skip


def layout(kind: str) -> str:
    items, head = events(), metadata()
    if kind == "one line":
        return dumps({**head, "traceEvents": items})
    if kind == "compact":
        return dumps({**head, "traceEvents": items}, comma=",", colon=":")
    if kind == "events first":
        return dumps({"traceEvents": items, **head})
    if kind == "pretty":
        return dumps({**head, "traceEvents": items}, comma=",\n        ", pad="\n    ")
    if kind == "tabs and crlf":
        return dumps({**head, "traceEvents": items}, comma="\t,\r\n", colon="\t:\t", pad="\r\n\t")
    if kind == "keys reversed":
        return dumps({**head, "traceEvents": [dict(reversed(item.items())) for item in items]})
    if kind == "second writer":
        lines = ",\n".join(dumps(item, comma=",", colon=":") for item in items)
        start = "".join(f"{json.dumps(key)}: {dumps(value)},\n" for key, value in head.items())
        return f'{{\n{start}"traceEvents": [\n{lines}\n],\n"traceName": "x"\n}}\n'
    if kind == "kineto":
        body = ",".join("\n  " + dumps(item, comma=",\n    ") for item in items)
        start = "".join(f"    {json.dumps(key)}: {dumps(value)},\n" for key, value in head.items())
        return f'\n  {{\n{start}  "traceEvents": [{body}\n  ],\n  "traceName": "t"\n}}\n'
    if kind == "raw unicode":
        return dumps({**head, "traceEvents": items}, ensure_ascii=False)
    raise AssertionError(kind)


LAYOUTS = (
    "one line", "compact", "events first", "pretty", "tabs and crlf", "keys reversed", "second writer",
    "kineto", "raw unicode",
)  # fmt: skip


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return digest(read_trace(write(tmp_path_factory.mktemp("reference"), layout("one line"))))


def test_reference_values(reference: dict[str, Any]) -> None:
    assert reference["events"] == 13
    kernels = [row for row in reference["gpu"] if row[3] == 0]
    assert [(row[0], row[1], row[4]) for row in kernels] == [(9_009, 30_011, 7), (35_555, 7_777, 13)]
    assert kernels[0][2].endswith(']}, {"ph": "X"}')
    mm = next(row for row in reference["host"] if row[2] == "aten::mm")
    assert mm[:2] == (1_003, 20_007) and mm[5:] == (2, 0, True)
    assert reference["shapes"] == [([[4, 8], [8, 2]], ["float", "float"])]
    assert reference["memory"] == [1 << 30] and reference["window"] == (0, 95_000)
    assert reference["rank"]["world_size"] == 2


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("block", [1 << 20, 97, 700])
def test_layouts_and_block_sizes(
    kind: str, block: int, reference: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "BLOCK_BYTES", block)
    assert digest(read_trace(write(tmp_path, layout(kind)))) == reference


def test_bare_array(reference: dict[str, Any], tmp_path: Path) -> None:
    found = digest(read_trace(write(tmp_path, dumps(events()))))
    assert {**found, "rank": reference["rank"]} == reference


def test_gzip_is_known_by_content(reference: dict[str, Any], tmp_path: Path) -> None:
    text = layout("kineto").encode()
    packed = gzip.compress(text[:900]) + gzip.compress(text[900:])  # two members
    assert digest(read_trace(write(tmp_path, packed, "trace.json"))) == reference
    assert digest(read_trace(write(tmp_path, text, "trace.json.gz"))) == reference


@pytest.mark.parametrize("module", ["isal", "zlib_ng", "gzip"])
def test_every_gzip_reader(
    module: str, reference: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = source.import_module

    def only(name: str) -> Any:
        if name.split(".")[0] != module:
            raise ImportError(name)
        return real(name)

    if module != "gzip":
        pytest.importorskip(module)
    monkeypatch.setattr(source, "import_module", only)
    file = write(tmp_path, gzip.compress(layout("kineto").encode()), "t.gz")
    assert digest(read_trace(file)) == reference
    with pytest.raises(InputError, match="gzip"):
        read_trace(write(tmp_path, gzip.compress(layout("kineto").encode())[:-40], "cut.gz"))


def test_byte_order_mark(reference: dict[str, Any], tmp_path: Path) -> None:
    assert digest(read_trace(write(tmp_path, b"\xef\xbb\xbf" + layout("pretty").encode()))) == reference


@pytest.mark.parametrize("origin", ["0", "4458676522690", "7889237999999", str(EPOCH_US)])
def test_times_are_exact(origin: str, reference: dict[str, Any], tmp_path: Path) -> None:
    found = digest(read_trace(write(tmp_path, dumps({**metadata(), "traceEvents": events(origin)}))))
    assert found == reference


@pytest.mark.parametrize("seed", range(3))
def test_epoch_microseconds_with_digits(seed: int, tmp_path: Path) -> None:
    """Nanoseconds that a double would round by up to 128."""
    choose = random.Random(seed)
    starts = [choose.randrange(10**9) for _ in range(200)]
    items = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1,
         "ts": Decimal(EPOCH_US) + Decimal(start) / 1000, "dur": Decimal(choose.randrange(10**6)) / 1000}
        for start in starts
    ]  # fmt: skip
    trace = read_trace(write(tmp_path, dumps({"traceEvents": items})))
    assert trace.host.ts.tolist() == [start - min(starts) for start in starts]


def test_whole_microseconds_and_nanoseconds(tmp_path: Path) -> None:
    for factor, unit in ((1, 1000), (1000, 1)):
        items = [
            {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7,
             "ts": EPOCH_US * factor + 13 * index, "dur": 5 + index}
            for index in range(4)
        ]  # fmt: skip
        trace = read_trace(write(tmp_path, json.dumps({"traceEvents": items})))
        assert trace.gpu.ts.tolist() == [13 * unit * index for index in range(4)]
        assert trace.gpu.dur.tolist() == [unit * (5 + index) for index in range(4)]


@pytest.mark.parametrize(
    ("old", "new", "repair"),
    [
        (b"aten::mm", b"aten::\x01\x1fmm", "control_characters"),
        (b"aten::mm", b"aten::\xff\xfemm", "invalid_utf8"),
        (b"aten::mm", b"aten::\\xmm", "invalid_escapes"),
        (b"aten::mm", b"aten::\\ud800mm", "invalid_escapes"),
        (b'"bytes": 4096', b'"bytes": NaN', "non_finite_numbers"),
        (b'"bytes": 4096', b'"bytes": -Infinity', "non_finite_numbers"),
        (b'"correlation": 79', b'"correlation": 79.5', "odd_field_types"),
        (b'"tid": 0', b'"tid": null', "odd_field_types"),
        (b'{"ph": "s"', b'null, {"ph": "s"', "not_an_object"),
    ],
)
@pytest.mark.parametrize("block", [1 << 20, 300])
def test_repairs_are_made_and_counted(
    old: bytes, new: bytes, repair: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "BLOCK_BYTES", block)
    text = layout("one line").encode()
    assert old in text
    trace = read_trace(write(tmp_path, text.replace(old, new)))
    assert trace.repairs[repair] >= 1
    assert len(trace.gpu) == 3 and len(trace.host) == 4
    assert trace.gpu.dur.tolist() == [30_011, 7_777, 1_001]


def test_numbers_in_quotes(reference: dict[str, Any], tmp_path: Path) -> None:
    text = layout("one line").replace('"correlation": 77', '"correlation": "77"')
    assert digest(read_trace(write(tmp_path, text.replace('"dur": 30.011', '"dur": "30.011"')))) == reference


@pytest.mark.parametrize("cut", [0.02, 0.3, 0.6, 0.93, 0.999])
@pytest.mark.parametrize("kind", ["kineto", "events first"])
def test_truncated_files_are_refused_with_their_place(cut: float, kind: str, tmp_path: Path) -> None:
    text = layout(kind).rstrip().encode()
    with pytest.raises(InputError) as fault:
        read_trace(write(tmp_path, text[: int(len(text) * cut)]))
    assert "byte" in str(fault.value) and "trace.json" in str(fault.value)
    assert fault.value.code == "trace-truncated"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"  \n ", "white space"),
        (b"PK\x03\x04rest", "zip"),
        (b"SQLite format 3\x00", "SQLite"),
        (b"<html></html>", "HTML"),
        (b"hello world", "JSON was expected"),
        (b"{}", "without traceEvents"),
        (b'{"a": 1, "b": [{"c": 2}, {"d": 3}]}', "without traceEvents"),
        (b'{"traceEvents": []}', "no events"),
        (b"[]", "no events"),
        (
            b'{"traceEvents": [{"ph": "X", "name": "v8", "cat": "devtools", "ts": 1, "dur": 2}]}',
            "profiler event",
        ),
        (b'{"note": "\\"traceEvents\\": ["}', "without traceEvents"),
        (b'{"traceEvents": {"a": 1}}', "traceEvents is no list"),
        (b'{"traceEvents": [{"ph": "X" "cat": "kernel"}]}', "broken JSON"),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel"}] "x": 1}', "after the last event"),
        ("{}".encode("utf-16"), "UTF-16"),
    ],
)
def test_foreign_files_are_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        read_trace(write(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"{}", "trace-foreign"),
        (b'{"traceEvents": {"a": 1}}', "trace-foreign"),
        (b"hello world", "trace-foreign"),
        (b"  \n ", "trace-empty"),
        (b"[]", "trace-empty"),
        (b'{"traceEvents": [{"ph": "X" "cat": "kernel"}]}', "trace-broken"),
    ],
)
def test_the_code_names_the_page_that_fits(content: bytes, code: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as fault:
        read_trace(write(tmp_path, content))
    assert fault.value.code == code


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_trace(tmp_path / "absent.json")
    with pytest.raises(InputError, match="folder"):
        read_trace(tmp_path)


def test_offset_of_a_fault_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BLOCK_BYTES", 256)
    text = layout("one line").encode()
    at = text.index(b'"dur": 7.777')
    with pytest.raises(InputError) as fault:
        read_trace(write(tmp_path, text[:at] + b"@" + text[at:]))
    offset = int(str(fault.value).split("(byte ")[1].split(")")[0])
    assert abs(offset - at) <= 2


@pytest.mark.full
def test_a_recorded_trace_in_tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = digest(read_trace(path(SAMPLED0)))
    monkeypatch.setattr(source, "BLOCK_BYTES", 50_001)
    assert digest(read_trace(path(SAMPLED0))) == whole
