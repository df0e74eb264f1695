"""Event files of jobs that ended in every way, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autotune.observe.read import read_observation
from autotune.records.observation import Observation

STEP = {"event": "step", "index": 1, "end_s": 10.0, "duration_ms": 500.0, "micro_batches": 1}


def write(
    folder: Path, events: list[dict[str, Any]], tail: str = "", exit_json: dict[str, Any] | None = None
) -> None:
    folder.mkdir(parents=True)
    text = "".join(json.dumps(event) + "\n" for event in events)
    (folder / "events.jsonl").write_text(text + tail)
    if exit_json is not None:
        (folder / "exit.json").write_text(json.dumps(exit_json))


def read(launch: Path) -> Observation:
    return read_observation(
        launch, mode="timing", command=["python"], cwd="/", exit_code=0, wall_s=1.0, expected_ranks=2
    )


def start(rank: int, world: int = 2) -> dict[str, Any]:
    return {"event": "start", "rank": rank, "world_size": world, "boot_s": 2.0, "at_s": 3.0}


def test_a_killed_rank_counts_up_to_its_last_whole_line(tmp_path: Path) -> None:
    events = [start(0), STEP, {**STEP, "index": 2, "end_s": 10.5}]
    write(tmp_path / "raw" / "rank-00000", events, tail='{"event": "step", "index": 3, "end_')
    observation = read(tmp_path)
    (rank,) = observation.ranks
    assert rank.status == "killed" and [step.index for step in rank.steps] == [1, 2]
    assert observation.expected_ranks == 2 and observation.notes == []


def test_device_clock_replaces_the_hosts(tmp_path: Path) -> None:
    events = [
        start(0, 1),
        STEP,
        {"event": "device_step", "index": 1, "device_ms": 812.5},
        {**STEP, "index": 2},
    ]
    write(tmp_path / "raw" / "rank-00000", events, exit_json={"status": "stopped"})
    first, second = read(tmp_path).ranks[0].steps
    assert (first.duration_ms, first.host_ms) == (812.5, 500.0)
    assert (second.duration_ms, second.host_ms) == (500.0, None)


def test_records_that_are_not_understood_are_said_and_skipped(tmp_path: Path) -> None:
    events = [start(0, 1), STEP, {"event": "memory", "what": 1}, {"event": "made up"}]
    write(tmp_path / "raw" / "rank-00000", events, exit_json={"status": "completed"})
    observation = read(tmp_path)
    assert observation.ranks[0].memory is None and len(observation.ranks[0].steps) == 1
    assert len(observation.notes) == 1 and "memory event of rank 0" in observation.notes[0]


def test_sites_of_ranks_become_one_and_a_restarted_rank_the_longer_one(tmp_path: Path) -> None:
    site = {
        "event": "site", "id": "loader-1", "kind": "loader", "callee": "torch.utils.data.DataLoader",
        "file": "/a.py", "file_sha256": "0", "span": None, "line": 3, "function": "main", "calls": 1,
    }  # fmt: skip
    write(tmp_path / "raw" / "rank-00000", [start(0), STEP, site])
    write(tmp_path / "raw" / "rank-00000.1", [start(0), STEP, site, {**STEP, "index": 2}])
    update = {"event": "site_update", "id": "loader-1", "calls": 7, "total_ms": 1.5}
    write(tmp_path / "raw" / "rank-00001", [start(1), STEP, site, update])
    guard = {"event": "guard", "action": "refused", "call": "open", "target": "/data"}
    write(tmp_path / "raw" / "process-99", [guard])
    observation = read(tmp_path)
    assert [(rank.rank, len(rank.steps)) for rank in observation.ranks] == [(0, 2), (1, 1)]
    (merged,) = observation.sites
    assert merged.ranks == [0, 1] and merged.calls == 7 and merged.total_ms == 1.5
    assert [one.action for one in observation.guards] == ["refused"]
    assert observation.notes == ["2 processes trained as rank 0; the one with the most steps is used"]


def test_nothing_was_written(tmp_path: Path) -> None:
    observation = read(tmp_path)
    assert observation.ranks == [] and observation.sites == [] and observation.expected_ranks == 2
