"""What fits into the limits of a loop, and what is told of that which did not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.optimize.arms import widest_tier
from autotune.optimize.gains import name_of
from autotune.records.ladder import Dropped
from autotune.records.verdict import STOPPED_AFTER

if TYPE_CHECKING:
    from autotune.optimize.options import LoopOptions
    from autotune.optimize.state import LoopState
    from autotune.records.plan import PlanGroup
    from autotune.records.terms import Tier
    from autotune.records.verdict import Verdict
    from autotune.verify.estimate import PlanEstimate
    from autotune.verify.starts import Finished

_OPEN = ("undecided", "no-steady-state", "not-finished", "baseline-incorrect")  # outcomes that decide nothing
_NEARLY = 0.95  # of the minutes: what ran so long was ended by them


@dataclass(frozen=True)
class Fit:
    """One trial against the limits."""

    over: str  # why it may not be made; empty when it may
    text: str = ""  # what is tried and what it takes; empty where that does not matter any more
    minutes_most: float = 0.0


def fit_of(
    state: LoopState,
    options: LoopOptions,
    batch: Sequence[PlanGroup],
    finished: Finished | None = None,
) -> Fit:
    """Whether a trial of these groups together may be made; `finished`: what is there of it takes no time."""
    if options.max_trials is not None and state.trials >= options.max_trials:
        return Fit(f"the limit of {options.max_trials} trials is reached")
    names = "; ".join(
        f"{name_of(g)} (at most {g.ratio_upper:.2f}x)" if g.ratio_upper else name_of(g) for g in batch
    )
    plan = _estimate(
        state, options, len(batch), widest_tier(group.parity for group in batch), finished, expected(batch)
    )
    if plan is None:
        cost = "The job's own times are not known, so neither is what this takes."
        return Fit("", f"Trial {state.trials + 1}: {names}. {cost}")
    cost = f"Expected {_minutes(plan)}, {plan.launches_least} or more starts of the job."
    over = ""
    if options.max_minutes is not None and state.minutes() + plan.minutes_least > options.max_minutes:
        over = f"the next trial does not fit into the limit of {options.max_minutes:g} minutes"
    return Fit(over, f"Trial {state.trials + 1}: {names}. {cost}", plan.minutes_most)


def expected(groups: Sequence[PlanGroup]) -> float | None:
    """The speed-up a trial is planned with: half of the largest bound, on the log scale."""
    bounds = [group.ratio_upper for group in groups if group.ratio_upper is not None]
    return math.sqrt(max(1.0, *bounds)) if bounds else None


def _estimate(
    state: LoopState,
    options: LoopOptions,
    changes: int,
    tier: Tier,
    finished: Finished | None = None,
    ratio: float | None = None,
) -> PlanEstimate | None:
    from autotune.verify.estimate import estimate_minutes

    asked = replace(options.verify, tier=tier)
    return estimate_minutes(state.observation, asked, arms=changes + 1, ratio=ratio, finished=finished)


def minutes_of_one(state: LoopState, options: LoopOptions) -> float:
    """What a trial of one change may take; 0 where the job's own times are not known."""
    plan = _estimate(state, options, 1, "numeric")
    return plan.minutes_most if plan is not None else 0.0


def _minutes(plan: PlanEstimate) -> str:
    return f"{plan.minutes_least:.1f} to {plan.minutes_most:.1f} minutes"


def next_words(
    state: LoopState, options: LoopOptions, groups: Sequence[PlanGroup], apart: Sequence[PlanGroup]
) -> str:
    """What follows a set that was not accepted; `apart` are the groups that leave it."""
    left = [group for group in groups if group not in apart]
    if fit_of(state, options, left or groups[:1]).over:
        return "No trial is left to tell which of them it is."
    if left:
        return f"Trying without {'; '.join(name_of(g) for g in apart)}."
    return "Trying them one by one."


def cut_short(verdict: Verdict) -> bool:
    """The minutes ended the comparison before it could decide."""
    if verdict.outcome not in _OPEN:
        return False
    if any(note.startswith(STOPPED_AFTER) for note in verdict.notes):
        return True
    limit = verdict.settings.max_minutes
    late = limit is not None and verdict.minutes_spent >= _NEARLY * limit
    return verdict.outcome == "not-finished" and late


def note_time(state: LoopState, options: LoopOptions, verdict: Verdict, changes: int) -> None:
    """Keep what a comparison would have taken that the minutes ended."""
    if not cut_short(verdict):
        return
    state.cut = True
    plan = _estimate(state, options, changes, verdict.settings.tier or "numeric")
    if plan is not None:
        state.needs_minutes = max(state.needs_minutes, plan.minutes_most)


def left_after(groups: Sequence[PlanGroup], verdict: Verdict, reason: str, path: str | None) -> Dropped:
    """What a trial that was not accepted leaves: a change that is not kept, or one not decided."""
    unknown = verdict.outcome in _OPEN
    return Dropped(
        group="+".join(group.id for group in groups),
        rules=[rule for group in groups for rule in group.rules],
        reason=reason,
        verdict=path,
        how="not-decided" if unknown else "not-kept",
        ratio=verdict.ratio if unknown else None,
    )


def untried(state: LoopState, options: LoopOptions, groups: Sequence[PlanGroup]) -> list[Dropped]:
    """The groups that no trial was left for, each with what its own would have taken."""
    known = {rule for entry in state.left_out() for rule in entry.rules}
    left = []
    for group in groups:
        if set(group.rules) <= known:
            continue
        plan = _estimate(state, options, 1, widest_tier([group.parity]), ratio=expected([group]))
        reason = "no trial was left for it"
        if plan is not None:
            reason = f"a trial of its own takes {_minutes(plan)}"
        left.append(Dropped(group=group.id, rules=group.rules, reason=reason, how="not-tried"))
    return left


def notes_of(verdict: Verdict, folder: Path) -> list[str]:
    """The notes of a comparison, with the trial they are of."""
    trial = f"trial {int(folder.name)}" if folder.name.isdigit() else "all kept"
    return [f"{trial}: {note}" for note in verdict.notes]


def command_to_go_on(state: LoopState, options: LoopOptions, run: str) -> str:
    """What to type so that the loop goes on where its limits ended it; finished starts are not repeated."""
    words = [options.resume_command or f"autotune optimize --resume {run}"]
    if options.max_minutes is not None:
        words.append(f"--max-minutes {max(math.ceil(state.needs_minutes), options.max_minutes):g}")
    if options.max_trials is not None:
        words.append(f"--max-trials {max(state.trials + 1, options.max_trials)}")
    return " ".join(words)
