"""Which changes of a failed trial are left out of the next one."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.optimize.blame import to_blame
from autotune.records.plan import PlanGroup
from autotune.records.verdict import LiveCheck, ParityResult, Settings, Verdict

KERNELS, CHURN, CONV = "kernels/linear-attention-fallback", "batching/shape-churn", "kernels/causal-conv"
GROUP = PlanGroup(id="g", rules=[KERNELS, CHURN, CONV], members=[], admissible=True)
OTHER = PlanGroup(id="h", rules=["stall/garbage-collector"], members=[], admissible=True)


def verdict(outcome: Any, *still: str) -> Verdict:
    check = LiveCheck(arm="g", fingerprint="reported", faults=[f"{r} still applies" for r in still])
    return Verdict(
        outcome=outcome,
        sentence="",
        parity=ParityResult(
            tier="numeric", used="numeric", outcome="equal", sentence="", reasons=[], checks=[]
        ),
        arms=[],
        trials=[],
        live=[check.model_copy(update={"rules": list(still)})],
        settings=Settings(
            tier="numeric", min_pairs=2, max_pairs=5, steps=8, warmup_steps=3, parity_steps=8, seed=0
        ),
    )


@pytest.mark.parametrize(
    ("groups", "found", "blamed"),
    [
        ([GROUP], verdict("patch-not-live", CHURN), [CHURN]),
        ([GROUP, OTHER], verdict("patch-not-live", CHURN), [CHURN]),
        ([GROUP], verdict("patch-not-live", KERNELS, CHURN, CONV), []),  # nothing is in effect
        ([GROUP], verdict("patch-not-live"), []),  # the edited files did not run
        ([OTHER], verdict("patch-not-live", *OTHER.rules), []),
        ([GROUP], verdict("parity-broken"), [CONV]),
        ([GROUP], verdict("candidate-crashed"), [CONV]),
        ([GROUP, OTHER], verdict("parity-broken"), []),  # first, which of the groups
        ([OTHER], verdict("parity-broken"), []),
        ([GROUP], verdict("slower"), []),
        ([GROUP], verdict("undecided"), []),
    ],
)
def test_blame(groups: list[PlanGroup], found: Verdict, blamed: list[str]) -> None:
    assert to_blame(groups, found) == blamed
