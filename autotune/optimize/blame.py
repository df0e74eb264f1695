"""Which changes a failed trial speaks against, so that the others of their group are tried without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.records.plan import PlanGroup
    from autotune.records.verdict import Verdict


def to_blame(groups: Sequence[PlanGroup], verdict: Verdict) -> list[str]:
    """Rules to leave out next time; empty where the trial speaks against all of its changes alike.

    A profile of the patched job names the changes that are not in effect. Where one group alone broke
    training or the job, its last member goes: the members before it were admitted without it.
    """
    rules = [rule for group in groups for rule in group.rules]
    named = {rule for check in verdict.live for rule in check.rules}
    if verdict.outcome == "patch-not-live" and named:
        blamed = [rule for rule in rules if rule in named]
    elif verdict.outcome in ("parity-broken", "candidate-crashed") and len(groups) == 1:
        blamed = rules[-1:]
    else:
        blamed = []
    return blamed if len(blamed) < len(rules) else []
