"""What rules predicted against what trials measured, over all runs: do the bounds hold, how far off?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from autotune.errors import AutotuneError
from autotune.records.ladder import Ladder
from autotune.records.plan import Plan
from autotune.records.verdict import Verdict
from autotune.store import list_runs, read_record


@dataclass(frozen=True)
class TrialResult:
    """One verified change: the bound before it and the ratio of step times (or token rates) after it."""

    run: str
    rules: tuple[str, ...]
    predicted_upper: float | None
    measured: float
    interval: tuple[float, float] | None
    kept: bool

    @property
    def within_bound(self) -> bool | None:
        """False when the measured ratio lies above the bound, with its whole interval where there is one."""
        if self.predicted_upper is None:
            return None
        lowest = self.interval[0] if self.interval is not None else self.measured
        return lowest <= self.predicted_upper


@dataclass(frozen=True)
class RuleCalibration:
    """All trials that held one rule; a group's trial counts for each of its rules."""

    rule: str
    trials: int
    kept: int
    predicted_upper: float | None  # median
    measured: float  # median
    reached_frac: float | None  # median of log(measured) / log(bound): 1 is all of the bound, 0 is nothing
    above_bound: int


def trial_results(runs_dir: Path) -> list[TrialResult]:
    """Every trial of every run that has a measured ratio; runs that cannot be read are passed over."""
    found: list[TrialResult] = []
    for run in list_runs(runs_dir):
        if not (run / "ladder.json").is_file():
            continue
        try:
            found += _of_run(run)
        except AutotuneError:
            continue
    return found


def _of_run(run: Path) -> list[TrialResult]:
    ladder = read_record(run / "ladder.json", Ladder)
    bounds: dict[str, float | None] = {}
    if (run / "plan.json").is_file():
        bounds = {group.id: group.ratio_upper for group in read_record(run / "plan.json", Plan).groups}
    found = [
        TrialResult(
            run.name,
            tuple(rung.rules),
            rung.predicted_upper,
            rung.ratio_to_previous,
            rung.interval_to_previous,
            True,
        )
        for rung in ladder.rungs
        if rung.rules and rung.ratio_to_previous is not None
    ]
    for dropped in ladder.dropped:
        if dropped.how == "not-decided" or dropped.verdict is None or not (run / dropped.verdict).is_file():
            continue
        verdict = read_record(run / dropped.verdict, Verdict)
        if verdict.ratio is not None:
            bound = bounds.get(dropped.group)
            found.append(
                TrialResult(run.name, tuple(dropped.rules), bound, verdict.ratio, verdict.interval, False)
            )
    return found


def per_rule(results: Iterable[TrialResult]) -> list[RuleCalibration]:
    """One row per rule, most trials first."""
    trials: dict[str, list[TrialResult]] = defaultdict(list)
    for result in results:
        for rule in result.rules:
            trials[rule].append(result)
    rows = []
    for rule, own in trials.items():
        bounded = [r for r in own if r.predicted_upper is not None and r.predicted_upper > 1.0]
        shares = [
            math.log(r.measured) / math.log(r.predicted_upper or 1.0) for r in bounded if r.measured > 0
        ]
        rows.append(
            RuleCalibration(
                rule=rule,
                trials=len(own),
                kept=sum(r.kept for r in own),
                predicted_upper=median(r.predicted_upper or 1.0 for r in bounded) if bounded else None,
                measured=median(r.measured for r in own),
                reached_frac=median(shares) if shares else None,
                above_bound=sum(r.within_bound is False for r in own),
            )
        )
    return sorted(rows, key=lambda row: (-row.trials, row.rule))
