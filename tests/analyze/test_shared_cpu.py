"""A job that was watched beside other work on its cores says so, and nothing is corrected for it."""

from __future__ import annotations

from pathlib import Path

from autotune.analyze.diagnose import RuleSources, diagnose_launch
from autotune.records.observation import (
    CpuLoad,
    EnvironmentRecord,
    Observation,
    RankObservation,
    StepRecord,
)
from autotune.store import write_record


def _notes(tmp_path: Path, foreign: float, idle: float) -> list[str]:
    steps = [StepRecord(index=i + 1, end_s=i, duration_ms=100.0) for i in range(10)]
    rank = RankObservation(
        rank=0, world_size=1, environment=EnvironmentRecord(python="3.12", torch="2.8"), status="stopped",
        steps=steps,
    )  # fmt: skip
    load = CpuLoad(cores=2, own_cores=0.9, foreign_cores=foreign, idle_frac=idle)
    seen = Observation(
        mode="profile", command=["python", "t.py"], cwd="/", exit_code=0, wall_s=9.0, ranks=[rank],
        expected_ranks=1, cpu_load=load,
    )  # fmt: skip
    run = tmp_path / f"at-{foreign}"
    write_record(run / "launches" / "observe" / "observation.json", seen)
    return diagnose_launch(run, "observe", RuleSources(disabled=("*",))).diagnosis.notes


def test_a_launch_beside_other_work_says_so(tmp_path: Path) -> None:
    (note,) = [n for n in _notes(tmp_path, foreign=1.0, idle=0.04) if "CPU" in n]
    assert note.startswith("the CPU was shared while this was timed: other programs used 1.0 of 2 cores")
    assert not [n for n in _notes(tmp_path, foreign=0.1, idle=0.04) if "CPU" in n]
    assert not [n for n in _notes(tmp_path, foreign=0.9, idle=0.4) if "CPU" in n]


def test_a_job_that_ends_before_a_step_is_profiled_says_so(tmp_path: Path) -> None:
    notes = _notes(tmp_path, foreign=0.1, idle=0.4)
    assert "the job ended after 10 steps, before one was profiled: with more steps more is decided" in notes
