"""What leaves a set of changes that was not decided together. Ratios of an H200 run with two pairs."""

from __future__ import annotations

import pytest

from autotune.optimize.gains import too_weak, without_gain
from autotune.records.plan import PlanGroup
from autotune.records.verdict import Contrast, Verdict

NAMES = ["compile/layer-parts", "memory/checkpointing-unneeded", "optimizer/not-fused"]


def _verdict(outcome: str, ratios: list[float]) -> tuple[Verdict, list[PlanGroup]]:
    before = ["as it is", *NAMES]
    contrasts = [
        Contrast(
            reference=before[i], candidate=name, outcome="undecided", ratio=ratio, unit="ms/step", sentence=""
        )
        for i, (name, ratio) in enumerate(zip(NAMES, ratios, strict=True))
    ]
    groups = [PlanGroup.model_construct(id=name) for name in NAMES]
    return Verdict.model_construct(outcome=outcome, contrasts=contrasts), groups


@pytest.mark.parametrize(
    ("outcome", "ratios", "expected"),
    [
        ("undecided", [1.0699, 1.3972, 1.0097], NAMES[2:]),
        ("undecided", [0.91, 1.3972, 1.0097], [NAMES[0], NAMES[2]]),
        ("undecided", [1.07, 1.40, 1.05], NAMES),  # nothing tells them apart: one by one
        ("undecided", [1.01, 1.02, 1.0], NAMES),
        ("parity-broken", [1.0699, 1.3972, 1.0097], NAMES),  # any of them may be the cause
    ],
)
def test_what_seems_to_bring_nothing_leaves_an_undecided_set(
    outcome: str, ratios: list[float], expected: list[str]
) -> None:
    verdict, groups = _verdict(outcome, ratios)
    assert [g.id for g in too_weak(verdict, groups, 1.03)] == expected


def test_a_rung_that_was_not_decided_brought_nothing_provable() -> None:
    verdict, groups = _verdict("faster", [1.07, 1.40, 1.05])
    assert without_gain(verdict, groups) == groups
