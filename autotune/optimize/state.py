"""Where a loop stands: the job as it is now, what was kept, what was dropped."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autotune.records.ladder import Dropped, Rung

if TYPE_CHECKING:
    from autotune.records.findings import Diagnosis
    from autotune.records.observation import Observation
    from autotune.records.plan import PatchedJob, PlanGroup


@dataclass
class LoopState:
    """Changes as the loop goes on; everything in it can be derived again from the run folder."""

    baseline: PatchedJob
    current: PatchedJob
    observation: Observation
    diagnosis: Diagnosis
    rungs: list[Rung]
    dropped: list[Dropped] = field(default_factory=list)
    refused: dict[str, Dropped] = field(
        default_factory=dict
    )  # by group: not possible in the job as it is now
    undecided: list[Dropped] = field(default_factory=list)  # sets whose joint trial decided nothing
    untried: list[Dropped] = field(default_factory=list)  # what no trial was left for
    notes: list[str] = field(default_factory=list)  # of the comparisons
    cut: bool = False  # some comparison was ended by the limit of minutes
    needs_minutes: float = 0.0  # of the largest trial that the limit ended or kept from being made
    kept: list[PlanGroup] = field(default_factory=list)
    solo: set[str] = field(default_factory=set)  # groups whose joint trial failed: tried one by one
    without: dict[str, str] = field(default_factory=dict)  # rules that spoilt a trial of others -> how
    failed: dict[str, str] = field(default_factory=dict)  # packages that could not be had -> why
    trials: int = 0
    rounds_kept: int = 0
    looked: Path = Path()  # folder of the profile the diagnosis is of
    roof: tuple[Path, float | None] | None = None  # share of its roofline, of the profile in this folder
    original: Diagnosis | None = None  # of the unchanged job
    earlier_s: float = 0.0  # starts made before this loop was resumed
    started: float = field(default_factory=time.monotonic)

    def minutes(self) -> float:
        """Minutes since this loop (or its resumption) began."""
        return (time.monotonic() - self.started) / 60.0

    def all_minutes(self) -> float:
        """With what was spent before the loop was resumed."""
        return self.minutes() + self.earlier_s / 60.0

    def left_out(self) -> list[Dropped]:
        """What was dropped, what was not decided and not settled later, and what was not tried."""
        names = {entry.group for entry in self.dropped}
        settled = {rule for entry in self.dropped for rule in entry.rules}
        settled |= {rule for group in self.kept for rule in group.rules}
        return [
            *self.dropped,
            *(entry for entry in self.undecided if not set(entry.rules) <= settled),
            *(entry for entry in self.refused.values() if entry.group not in names),
            *self.untried,
        ]

    def is_cut(self) -> bool:
        """The minutes ended a comparison, and what it was about is still not decided."""
        return self.cut and any(entry.how == "not-decided" for entry in self.left_out())

    def outcome(self, limited: bool) -> Literal["faster", "nothing-to-do", "nothing-kept", "undecided"]:
        """The result in a word; `limited`: a limit ended the loop, so nothing kept says nothing."""
        if self.kept:
            return "faster"
        if limited:
            return "undecided"
        return "nothing-kept" if self.left_out() else "nothing-to-do"

    def is_closed(self, group: PlanGroup) -> bool:
        """Already kept or dropped."""
        names = {entry.group for entry in self.dropped} | {entry.id for entry in self.kept}
        return group.id in names
