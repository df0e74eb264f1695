"""Which rungs of a joint trial brought something beside the arm before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.records.plan import PlanGroup
    from autotune.records.verdict import Verdict


def without_gain(verdict: Verdict, groups: Sequence[PlanGroup]) -> list[PlanGroup]:
    """Rungs that did not make the arm before them faster; none when there is one rung."""
    if len(groups) < 2:
        return []
    return [group for group in groups if not _made_faster(verdict, groups, group)]


def _made_faster(verdict: Verdict, groups: Sequence[PlanGroup], group: PlanGroup) -> bool:
    index = groups.index(group)
    before = "as it is" if index == 0 else groups[index - 1].id
    for contrast in verdict.contrasts:
        if contrast.reference == before and contrast.candidate == group.id:
            return contrast.outcome == "faster"
    return False


def contrast_text(verdict: Verdict, groups: Sequence[PlanGroup], group: PlanGroup) -> str:
    index = groups.index(group)
    before = "as it is" if index == 0 else groups[index - 1].id
    for contrast in verdict.contrasts:
        if contrast.reference == before and contrast.candidate == group.id:
            return contrast.sentence
    return "it was not measured"


def name_of(group: PlanGroup) -> str:
    return " + ".join(member.title for member in group.members) or group.id
