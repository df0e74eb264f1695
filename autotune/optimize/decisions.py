"""What only a person can decide: changes of arithmetic, batches or schedule that no loop takes by itself."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.records.findings import Diagnosis, Finding, Fix

BY_HAND = "by hand"
LEAST = 1.01  # times as fast at most: less is not worth a decision


def for_a_person(diagnosis: Diagnosis, kept: Collection[str], dropped: Collection[str]) -> list[str]:
    """One line for each finding of the job, as it is now, whose ways all ask for a decision.

    `kept`, `dropped`: rules whose change was kept, or was tried and brought nothing.
    """
    lines = []
    for finding in diagnosis.findings:
        if finding.rule in kept or finding.rule in dropped or finding.explained_by is not None:
            continue
        ways = [(fix, why) for fix in finding.fixes if (why := _decision(finding, fix))]
        if not ways or len(ways) < len(finding.fixes):
            continue
        fix, why = ways[0]
        bound = finding.gain.ratio_upper
        worth = bound is not None and bound >= LEAST
        if why == BY_HAND and not worth:
            continue  # a hint, no decision: the diagnosis holds it
        most = f", at most {bound:.2f}x" if worth else ""
        lines.append(f"{finding.title}: {fix.title} ({finding.rule}; {why}{most})")
    return lines


def _decision(finding: Finding, fix: Fix) -> str:
    """Why the loop does not take this way by itself; empty when it may."""
    if (fix.parity or finding.parity) == "statistical":
        return "it changes what is computed, so only a longer comparison tells"
    if fix.applicability == "review":
        return "needs your review; --unsafe takes it"
    if fix.applicability == "advice" or not fix.steps:
        return BY_HAND
    return ""
