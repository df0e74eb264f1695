"""Proof that a change is in effect: in a fresh profile of the patched job its finding is gone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import AutotuneError

if TYPE_CHECKING:
    from autotune.analyze.diagnose import RuleSources
    from autotune.records.observation import Observation
    from autotune.records.plan import PlanGroup
    from autotune.verify.arm import LiveCheck, LiveFindings


_ROLES = ("linear_attention", "causal_conv")


def fused_roles(groups: Sequence[PlanGroup]) -> tuple[str, ...]:
    """Roles whose fused kernels these changes are expected to bring."""
    fast = {name for group in groups for name, fact in group.predicted.items() if fact.value == "fast"}
    return tuple(role for role in _ROLES if f"kernels.{role}" in fast)


def live_check_for(groups: Sequence[PlanGroup], rules: RuleSources) -> LiveCheck | None:
    """A check for changes that can silently not happen: packages and shims; None when there is none."""
    wanted = [m.rule for g in groups for m in g.members if m.surface in ("package", "shim") or g.packages]
    if not wanted:
        return None

    def check(observation: Observation, folder: Path) -> LiveFindings:
        from autotune.analyze.diagnose import diagnose_observation
        from autotune.verify.arm import LiveFindings

        try:
            found = diagnose_observation(observation, folder, rules)
        except AutotuneError as fault:
            return LiveFindings(faults=(f"the patched job's profile could not be read: {fault}",))
        still = [f.rule for f in found.findings if f.rule in wanted]
        open_ = [u.rule for u in found.undecided if u.rule in wanted]
        faults = [f"{rule} still applies to the patched job" for rule in still]
        checked = [f"{rule} no longer applies" for rule in wanted if rule not in still and rule not in open_]
        return LiveFindings(faults=tuple(faults), rules=tuple(still), checked=tuple(checked))

    return check
