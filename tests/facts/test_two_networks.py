"""Two networks that train each other take one batch in a step, whatever the number of their backwards."""

from __future__ import annotations

import pytest
from facts_of import facts_of

from autotune.records.observation import (
    EnvironmentRecord,
    LoaderRecord,
    OptimizerRecord,
    RankObservation,
    StepRecord,
)


def accumulation(optimizers: int, examples: int, backwards: int) -> tuple[object, object]:
    steps = [
        StepRecord(index=i, end_s=i / 10, duration_ms=100.0, micro_batches=backwards, examples=examples)
        for i in range(1, 12)
    ]
    rank = RankObservation(
        rank=0,
        world_size=1,
        environment=EnvironmentRecord(python="3.11", torch="2.13"),
        status="stopped",
        steps=steps,
        optimizers=[OptimizerRecord(class_name="Adam", implementation="fused")] * optimizers,
        loaders=[LoaderRecord(batch_size=8, batches=120)],
    )
    facts = facts_of(rank)
    return facts["data.accumulation_steps"], facts["run.optimizer_steps_per_epoch"]


@pytest.mark.parametrize(
    ("optimizers", "examples", "backwards", "expected"),
    [
        (2, 8, 2, (1.0, 120.0)),  # a generator and its critic
        (2, 16, 4, (2.0, 60.0)),  # they, with accumulation
        (1, 16, 2, (2.0, 60.0)),  # accumulation
        (1, 8, 2, (2.0, 60.0)),  # one batch in two pieces
    ],
)
def test_backwards_of_two_networks(
    optimizers: int, examples: int, backwards: int, expected: tuple[float, float]
) -> None:
    assert accumulation(optimizers, examples, backwards) == expected
