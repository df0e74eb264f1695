"""How much saving and evaluating costs, told from a few steps of a job that starts slowly."""

from __future__ import annotations

import pytest
from facts_of import facts_of

from autotune.records.observation import (
    EnvironmentRecord,
    PhaseRecord,
    RankObservation,
    StepRecord,
    StepTag,
)


def facts(saves_after: list[int], save_ms: float = 60.0) -> dict[str, object]:
    """16 steps of 100 ms, the first six six times as long; a save belongs to the step after it."""
    steps, phases, now = [], [], 0.0
    for index in range(1, 17):
        begin, paused = now, save_ms if index - 1 in saves_after else 0.0
        if paused:
            phases.append(PhaseRecord(kind="checkpoint", start_s=begin + 0.001, duration_ms=paused))
        duration = (600.0 if index <= 6 else 100.0) + paused
        now += duration / 1000
        tags: list[StepTag] = ["first", "warmup"] if index == 1 else ["warmup"] if index <= 6 else []
        if paused:
            tags.append("checkpoint")
        steps.append(StepRecord(index=index, end_s=now, duration_ms=duration, tags=tags))
    rank = RankObservation(
        rank=0,
        world_size=1,
        environment=EnvironmentRecord(python="3.11", torch="2.13"),
        status="stopped",
        steps=steps,
        phases=phases,
    )
    return facts_of(rank)


def test_a_save_every_third_step() -> None:
    found = facts([3, 6, 9, 12, 15])
    assert found["stall.saves_seen"] == 5
    assert found["stall.checkpoint_frac"] == pytest.approx(20 / 120)  # 5 x 60 ms over 15 steps, beside 100 ms
    assert found["stall.evaluation_frac"] == 0.0


def test_a_save_before_the_first_step_happens_once() -> None:
    assert facts([0])["stall.saves_seen"] == 0


def test_saves_in_every_step_leave_a_step_time() -> None:
    found = facts(list(range(1, 16)))
    assert found["stall.checkpoint_frac"] == pytest.approx(60 / 160)
    assert found["run.step_ms"] == pytest.approx(160.0)
