"""Which change to try first: the one with the largest expected gain for each minute its trial takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.records.observation import Observation
    from autotune.records.plan import PlanGroup
    from autotune.verify.arm import VerifyOptions

_UNBOUNDED = 1.1  # expected of a change nobody can bound
_INSTALL_MINUTES = 1.0  # packages are looked for, loaded, and proven by a start of their own


def by_gain_per_minute(
    groups: Sequence[PlanGroup], observation: Observation, options: VerifyOptions
) -> list[PlanGroup]:
    """The groups with the best one first; none before one it comes after, equal ones as the plan has them."""
    waiting = sorted(groups, key=lambda group: -_worth(group, observation, options))
    ordered: list[PlanGroup] = []
    while waiting:
        pending = {rule for group in waiting for rule in group.rules}
        ready = [g for g in waiting if not set(g.after) & (pending - set(g.rules))]
        ordered.append((ready or waiting)[0])
        waiting.remove(ordered[-1])
    return ordered


def _worth(group: PlanGroup, observation: Observation, options: VerifyOptions) -> float:
    """Logarithm of the bound for each minute of a trial of its own."""
    return math.log(max(1.0, group.ratio_upper or _UNBOUNDED)) / trial_minutes(group, observation, options)


def trial_minutes(group: PlanGroup, observation: Observation, options: VerifyOptions) -> float:
    """At least; 1 where the job's own times are not known, so that the bound alone decides."""
    from autotune.verify.estimate import estimate_minutes

    own = replace(options, tier=group.parity or "numeric")
    plan = estimate_minutes(observation, own, ratio=group.ratio_upper)
    minutes = plan.minutes_least if plan is not None else 1.0
    return max(minutes, 1e-3) + (_INSTALL_MINUTES if group.packages else 0.0)
