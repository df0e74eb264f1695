"""Which rungs of a joint trial brought something beside the arm before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.records.plan import PlanGroup
    from autotune.records.verdict import Contrast, Verdict


def without_gain(verdict: Verdict, groups: Sequence[PlanGroup]) -> list[PlanGroup]:
    """Rungs that did not make the arm before them faster; none when there is one rung."""
    if len(groups) < 2:
        return []
    return [group for group in groups if not _made_faster(verdict, groups, group)]


def too_weak(verdict: Verdict, groups: Sequence[PlanGroup], least: float) -> list[PlanGroup]:
    """Rungs of an undecided set that seem to bring less than `least`; all when that does not tell them apart.

    Alone a rung has a smaller effect under the same noise: only what adds noise and no gain leaves the set.
    """
    found = [(g, _contrast(verdict, groups, g)) for g in groups]
    weak = [g for g, c in found if c is not None and c.ratio is not None and c.ratio < least]
    return weak if verdict.outcome == "undecided" and 0 < len(weak) < len(groups) else list(groups)


def _made_faster(verdict: Verdict, groups: Sequence[PlanGroup], group: PlanGroup) -> bool:
    contrast = _contrast(verdict, groups, group)
    return contrast is not None and contrast.outcome == "faster"


def contrast_text(verdict: Verdict, groups: Sequence[PlanGroup], group: PlanGroup) -> str:
    contrast = _contrast(verdict, groups, group)
    return "it was not measured" if contrast is None else contrast.sentence


def _contrast(verdict: Verdict, groups: Sequence[PlanGroup], group: PlanGroup) -> Contrast | None:
    """The group's arm against the arm before it."""
    index = groups.index(group)
    before = "as it is" if index == 0 else groups[index - 1].id
    found = (c for c in verdict.contrasts if c.reference == before and c.candidate == group.id)
    return next(found, None)


def name_of(group: PlanGroup) -> str:
    return " + ".join(member.title for member in group.members) or group.id
