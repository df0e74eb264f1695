"""A rank that waits for its data is named without a trace."""

from __future__ import annotations

import pytest

from autotune.facts.everything import derive_facts
from autotune.records.observation import EnvironmentRecord, Observation, RankObservation, StepRecord


def observation(waits_ms: list[float]) -> Observation:
    """Ranks that exchange gradients: each step takes as long as the slowest rank."""
    step_ms = 100.0 + max(waits_ms)
    ranks = [
        RankObservation(
            rank=rank,
            world_size=len(waits_ms),
            environment=EnvironmentRecord(python="3.11", torch="2.13"),
            status="stopped",
            steps=[
                StepRecord(index=i, end_s=i * step_ms / 1000, duration_ms=step_ms, loader_wait_ms=wait)
                for i in range(1, 11)
            ],
        )
        for rank, wait in enumerate(waits_ms)
    ]
    return Observation(
        mode="profile",
        command=["python", "train.py"],
        cwd=".",
        exit_code=0,
        wall_s=10.0,
        ranks=ranks,
        expected_ranks=len(waits_ms),
    )


@pytest.mark.parametrize("waits_ms", [[1.0, 61.0], [1.0, 1.0, 61.0, 1.0]])
def test_the_rank_with_the_slow_disk(waits_ms: list[float]) -> None:
    facts = derive_facts(observation(waits_ms), None).facts
    assert facts["comm.rank_skew_frac"].value == pytest.approx(60 / 101)
    assert facts["comm.slowest_rank"].value == waits_ms.index(61.0)


def test_ranks_that_wait_alike_say_nothing() -> None:
    facts = derive_facts(observation([30.0, 31.0]), None).facts
    assert facts["comm.rank_skew_frac"].state == "absent"
