"""Equal batches on all ranks: a fault only where the ranks split nothing but the data."""

from __future__ import annotations

import pytest
from facts_of import facts_of

from autotune.records.observation import (
    EnvironmentRecord,
    ForwardRecord,
    LoaderRecord,
    ProcessGroupRecord,
    RankObservation,
    ShardingRecord,
)

WORLD = [8]
EQUAL = [["a", "b", "c"], ["a", "b", "c"]]


def same_batches(digests: list[list[str]], groups: list[int], whole: bool | None) -> object:
    ranks = [
        RankObservation(
            rank=number,
            world_size=8,
            environment=EnvironmentRecord(python="3.11", torch="2.13"),
            status="stopped",
            loaders=[LoaderRecord(digests=values)],
            forward=ForwardRecord(keys=["x"], whole_batches=whole),
            process_groups=[ProcessGroupRecord(name=str(n), size=size) for n, size in enumerate(groups)],
            sharding=ShardingRecord(kind="fsdp2", mesh=[8]),
        )
        for number, values in enumerate(digests)
    ]
    return facts_of(*ranks)["comm.same_batches"]


@pytest.mark.parametrize(
    ("digests", "groups", "whole", "expected"),
    [
        (EQUAL, WORLD, True, True),
        ([["a", "b", "c"], ["a", "b", "d"]], WORLD, True, False),
        (EQUAL, [8, 2], True, None),  # tensor or context parallelism inside the flattened mesh
        (EQUAL, [8, 8], True, None),  # a sequence split over all ranks
        (EQUAL, [8, 1], True, True),
        (EQUAL, WORLD, False, None),  # each rank takes its part of the batch
        (EQUAL, WORLD, None, None),
        ([["a"], ["a"]], WORLD, True, None),
        ([["a", "a", "a"], ["a", "a", "a"]], WORLD, True, None),  # one batch over and over
        ([["a", "b"], []], WORLD, True, None),
    ],
)
def test_equal_batches(
    digests: list[list[str]], groups: list[int], whole: bool | None, expected: bool | None
) -> None:
    assert same_batches(digests, groups, whole) is expected
