"""Traces that were tampered with, glued together or confused about time: told, never silently summed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.main import run
from autotune.errors import InputError
from autotune.trace.diff import diff
from autotune.trace.reader import read_trace
from autotune.trace.structure import string_mask
from autotune.trace.summary import summarize
from tests.trace.recorded import TABLES

Events = list[dict[str, Any]]


def event(category: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    gpu = {"pid": 0, "tid": 7} if category == "kernel" else {"pid": 1, "tid": 1}
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, **gpu, "args": args}


def steps() -> Events:
    found: Events = []
    for number in range(6):
        at = 1_000 * number
        found += [
            event("user_annotation", f"ProfilerStep#{number}", at, 990),
            event("cpu_op", "aten::mm", at + 10, 50, **{"External id": number + 1}),
            event("cuda_runtime", "cudaLaunchKernel", at + 20, 5, correlation=number + 1),
            event("kernel", "sgemm", at + 100, 300, stream=7, device=0, correlation=number + 1),
        ]
    return found


def write(path: Path, events: Events) -> Path:
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def codes(path: Path) -> set[str]:
    found = summarize([path], tables_dir=TABLES).ranks[0].validity.warnings
    return {warning.code for warning in found if warning.severity in ("caution", "unreliable")}


def test_a_plain_trace_raises_no_warning(tmp_path: Path) -> None:
    assert codes(write(tmp_path / "t.json", steps())) == set()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda events: [e.update(ts=e["ts"] + 1e12) for e in events[8:]], "clock_jump"),
        (lambda events: [e.update(ts=5) for e in events], "no_time"),
        (lambda events: [e.update(ts=10**30) for e in events[:8]], "clipped_time"),
        (lambda events: events.extend(events[:]), "repeated_events"),
        (lambda events: [e["args"].update(correlation=3) for e in events], "shared_correlation"),
    ],
)  # fmt: skip
def test_implausible_times_and_identities_are_told(change: Any, code: str, tmp_path: Path) -> None:
    events = steps()
    change(events)
    assert code in codes(write(tmp_path / "t.json", events))


@pytest.mark.parametrize("joint", ["", "\n", " , "])
@pytest.mark.parametrize("bare", [False, True])
def test_two_traces_in_one_file_are_refused(joint: str, bare: bool, tmp_path: Path) -> None:
    text = json.dumps(steps() if bare else {"traceEvents": steps()})
    (tmp_path / "t.json").write_text(text + joint + text)
    with pytest.raises(InputError, match=r"several traces in one file|after the (last event|end)"):
        read_trace(tmp_path / "t.json")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.json")
    with pytest.raises(InputError, match="not a regular file"):
        read_trace(tmp_path / "t.json")


def test_a_count_in_digits_of_another_script_is_unknown(tmp_path: Path) -> None:
    args = {"Collective name": "allreduce", "In msg nelems": "\u00b2", "Group size": "9" * 5000}
    kernel = event("kernel", "ncclDevKernel_AllReduce", 9_000, 5, **args)
    found = read_trace(write(tmp_path / "t.json", [*steps(), kernel])).collectives[0]
    assert found.elements_in is None and found.group_size is None


def test_one_huge_entry_costs_no_more_than_its_size(tmp_path: Path) -> None:
    start = time.process_time()
    for name in ("a" * (12 << 20), '\\"' * (4 << 20), "\\\\" * (4 << 20)):
        text = f'{{"traceEvents": [{{"ph": "X", "cat": "kernel", "ts": 1, "dur": 2, "name": "{name}"}}]}}'
        (tmp_path / "t.json").write_text(text)
        assert len(read_trace(tmp_path / "t.json").gpu) == 1
    assert time.process_time() - start < 12  # scanning all again with every block took minutes


@pytest.mark.parametrize("text", ['"a\\\\"b"c\\\\\\"d"', '\\"', '"\\', '""', '"\\\\\\\\"x"', 'x"\\"\\""y'])
def test_strings_end_at_quotes_that_are_not_escaped(text: str) -> None:
    inside, expected, escaped = False, [], False
    for character in text:
        if character == '"' and not escaped:
            inside = not inside
        expected.append(inside)
        escaped = character == "\\" and not escaped
    assert string_mask(text.encode()).tolist() == expected


EVIL = "\x1b[31mred\x1b]0;title\x07\r\n\x9b2J\u202egnp.exe\u2066"


def test_names_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = steps()
    for item in events:
        item["name"] += EVIL
    path = write(tmp_path / f"rank{EVIL}.json", events)
    monkeypatch.chdir(tmp_path)
    for arguments in (["trace"], ["trace", "--json"], ["diff", str(path)], ["analyze", "--trace"]):
        assert run([*arguments, str(path)]) == 0
        said = capsys.readouterr()
        assert [c for c in said.out + said.err if not c.isprintable() and c != "\n"] == []


def test_a_file_name_that_is_no_text_is_shown_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"rank\xff.json")
    write(tmp_path / name, steps())
    for arguments in (
        ["trace"],
        ["trace", "--json"],
        ["diff", name, "--json"],
        ["analyze", "--json", "--trace"],
    ):
        assert run([*arguments, name]) == 0
        said = capsys.readouterr().out
        assert said.encode()
        if "--json" in arguments:
            json.loads(said)
    assert run(["report", "--sarif", "found.sarif"]) == 0


def of_rank(path: Path, rank: int, **more: Any) -> Path:
    info = {"rank": rank, "world_size": 2, "backend": "nccl", **more}
    base = 1_790_857_026_000_000_000 + more.get("late_s", 0) * 1_000_000_000
    path.write_text(
        json.dumps({"distributedInfo": info, "baseTimeNanoseconds": base, "traceEvents": steps()})
    )
    return path


@pytest.mark.parametrize(
    ("second", "code"),
    [
        ({"rank": 0}, "same_rank_twice"),
        ({"rank": 7}, "rank_out_of_range"),
        ({"rank": 1, "backend": "gloo"}, "different_jobs"),
        ({"rank": 1, "world_size": 4}, "different_jobs"),
        ({"rank": 1, "late_s": 7200}, "recorded_apart"),
    ],
)
def test_files_that_are_no_ranks_of_one_recording_are_told(
    second: dict[str, Any], code: str, tmp_path: Path
) -> None:
    paths = [of_rank(tmp_path / "a.json", 0), of_rank(tmp_path / "b.json", **second)]
    found = summarize(paths, tables_dir=TABLES)
    assert code in {warning.code for warning in found.warnings}
    assert (found.cross_rank is None) == (code == "same_rank_twice")


def test_ranks_of_one_recording_raise_no_warning(tmp_path: Path) -> None:
    paths = [of_rank(tmp_path / f"{rank}.json", rank, late_s=rank) for rank in (0, 1)]
    assert summarize(paths, tables_dir=TABLES).warnings == []


def test_a_diff_tells_what_its_sides_lost(tmp_path: Path) -> None:
    lost = [item for item in steps() if item["cat"] != "kernel"]
    one = summarize([write(tmp_path / "a.json", steps())], tables_dir=TABLES)
    other = summarize([write(tmp_path / "b.json", lost)], tables_dir=TABLES)
    assert "missing_gpu_events" in {warning.code for warning in diff(one, other).warnings}
    assert diff(one, one).warnings == []


def test_hidden_files_of_a_folder_are_no_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "rank0.json", steps())
    (tmp_path / "._rank0.json").write_bytes(b"\0\5\x16\7")
    assert run(["trace", str(tmp_path)]) == 0
    assert "rank0.json: 24 events" in capsys.readouterr().out


def test_metadata_without_a_time_does_not_decide_the_unit(tmp_path: Path) -> None:
    labels = [
        {"ph": "M", "name": "process_name", "pid": n, "ts": 0, "args": {"name": "x"}} for n in range(900)
    ]
    events = [
        {**item, "ts": item["ts"] * 1000 + 1_790_857_026 * 10**9, "dur": item["dur"] * 1000}
        for item in steps()
    ]
    trace = read_trace(write(tmp_path / "t.json", [*labels, *events]))
    assert trace.gpu.dur.tolist() == [300_000] * 6 and not +trace.repairs
