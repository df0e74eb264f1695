"""A file read in two processes gives the record, and the errors, of one process."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from autotune.data import data_dir
from autotune.errors import InputError
from autotune.records.trace import RankTrace
from autotune.trace import halves
from autotune.trace.build import Part, TraceBuilder
from autotune.trace.classes import load_kernel_table
from autotune.trace.context import prepare
from autotune.trace.summary import derive, summarize

TRACES = Path(__file__).parents[1] / "traces"
SMALL = (
    "a100_2rank_ddp_nccl_args_rank0.json.gz",
    "h100_1gpu_qwen1.5-0.5b_infer_scrubbed.json.gz",
    "h200_qwen35_2b4_packed_varlen_1step.json.gz",
    "mi300x_8rank_resnet_actckpt_rank0.json.gz",
)
TABLES = data_dir("rules") / "_tables"


def record(path: Path, processes: int) -> RankTrace:
    trace = halves.read(path, processes=processes, min_plain_bytes=0)
    return derive(prepare(trace, load_kernel_table(TABLES)), path.name, TABLES)


@pytest.mark.parametrize("name", SMALL)
def test_two_processes_give_the_record_of_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[int] = []
    absorb = TraceBuilder.absorb

    def counted(builder: TraceBuilder, part: Part) -> bool:
        joined.append(part.events)
        return absorb(builder, part)

    monkeypatch.setattr(TraceBuilder, "absorb", counted)
    assert record(TRACES / name, 2) == record(TRACES / name, 1)
    assert len(joined) == 1 and joined[0] > 0  # the later half was really used


def event(index: int, name: str = "aten::mul") -> str:
    return (
        f'{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1, "tid": 1, "ts": {index}.125, "dur": 0.5, '
        f'"args": {{"External id": {index}, "Sequence number": {index + 7}}}}}'
    )


def write(path: Path, events: list[str], tail: str = '], "deviceProperties": []}') -> Path:
    path.write_text('{"schemaVersion": 1, "traceEvents": [' + ",\n".join(events) + tail)
    return path


def test_a_place_inside_a_name_is_not_taken_for_an_event(tmp_path: Path) -> None:
    trap = "x" * 3000 + "}, {" * 2000 + "y" * 3000
    path = write(tmp_path / "trap.json", [event(1), event(2, trap), event(3)])
    trace = halves.read(path, processes=2, min_plain_bytes=0)
    assert trace.event_count == 3
    assert sorted(trace.names) == ["aten::mul", trap]


def test_only_one_long_event_leaves_no_place_to_start(tmp_path: Path) -> None:
    path = write(tmp_path / "one.json", [event(1, "n" * 5000)])
    assert halves.read(path, processes=2, min_plain_bytes=0).event_count == 1


@pytest.mark.parametrize(
    ("events", "tail"),
    [
        ([*map(event, range(400)), '{"ph": "X", "cat": '], ""),
        ([*map(event, range(400)), '{"ph" "X"}'], "]}"),
        ([*map(event, range(400))], "]"),
    ],
)
def test_faults_are_those_of_one_process(tmp_path: Path, events: list[str], tail: str) -> None:
    path = write(tmp_path / "broken.json", events, tail)
    with pytest.raises(InputError) as alone:
        halves.read(path, processes=1)
    with pytest.raises(InputError) as together:
        halves.read(path, processes=2, min_plain_bytes=0)
    assert str(together.value) == str(alone.value)
    assert together.value.where == alone.value.where


def test_a_fault_in_the_later_half_is_repaired_once(tmp_path: Path) -> None:
    events = [
        *map(event, range(300)),
        event(300).replace("aten::mul", "a\x01b"),
        *map(event, range(301, 400)),
    ]
    path = write(tmp_path / "control.json", events)
    alone = halves.read(path, processes=1)
    together = halves.read(path, processes=2, min_plain_bytes=0)
    assert together.event_count == alone.event_count == 400
    assert together.repairs == alone.repairs
    assert together.repairs["control_characters"] == 1


def _killed(path: Path, tables_dir: Path, processes: int | None = None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("fault", ["killed", "no shared memory"])
def test_ranks_are_read_one_by_one_where_processes_fail(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import concurrent.futures
    from multiprocessing import synchronize

    if fault == "killed":
        ordinary = concurrent.futures.ProcessPoolExecutor.map

        def killing(pool: Any, call: Any, *columns: Any) -> Any:
            return ordinary(pool, _killed, *columns)

        monkeypatch.setattr(concurrent.futures.ProcessPoolExecutor, "map", killing)
    else:

        def refused(*arguments: Any, **named: Any) -> None:
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(synchronize.SemLock, "__init__", refused)
    paths = [TRACES / f"train_128rank_sampled_rank{number}.json.gz" for number in (0, 1)]
    found = summarize(paths, tables_dir=TABLES, processes=2)
    assert [rank.rank for rank in found.ranks] == [0, 1]
