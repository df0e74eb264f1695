"""From what a launch recorded to the one number it contributes, and the unit all launches share.

A step takes as long as its slowest rank. Where every arm does the same work in a step the figure is the
median step time over the same steps of every arm; where the work differs (packing, batch size, other shapes)
only useful tokens per second compares; where steps come in bursts the median would hide the waits, so the
total time counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from autotune.records.observation import Observation, RankObservation, StepRecord
from autotune.records.verdict import MemoryPeak, RunFigure, Trial, TrialStep, Unit
from autotune.verify.steady import LEAST_STEPS, Steady, excluded_positions, find_steady

SAME_WORK = 1.05  # mean work of a step, arm against arm, where batches are drawn anew in every launch
_PAUSES = ("checkpoint", "evaluation")
BURSTS = 1.15  # mean step against median step: from here on the median does not stand for the launch


@dataclass(frozen=True, slots=True)
class UnitChoice:
    """The unit of a comparison and why; `comparable` is false where no unit is fair to both arms."""

    unit: Unit
    reason: str
    comparable: bool = True


def trial_steps(observation: Observation) -> list[TrialStep]:
    """The steps every training rank took, in order, with counts summed over ranks."""
    ranks = [rank for rank in observation.ranks if rank.steps]
    if not ranks:
        return []
    by_index = [{step.index: step for step in rank.steps} for rank in ranks]
    common = sorted(set.intersection(*(set(steps) for steps in by_index)))
    seen: set[tuple[tuple[int, ...], ...]] = set()
    return [_trial_step(index, [steps[index] for steps in by_index], seen) for index in common]


def _trial_step(index: int, steps: Sequence[StepRecord], seen: set[tuple[tuple[int, ...], ...]]) -> TrialStep:
    shapes = tuple(shape for step in steps for shape in step.shapes)
    new_shape = None if not shapes else shapes not in seen
    seen.add(shapes)
    waits = [step.loader_wait_ms for step in steps]
    return TrialStep(
        index=index,
        rank_ms=[step.duration_ms for step in steps],
        examples=_total(step.examples for step in steps),
        tokens=_total(step.tokens for step in steps),
        real_tokens=_total(step.real_tokens for step in steps),
        supervised_tokens=_total(step.supervised_tokens for step in steps),
        micro_batches=_total(step.micro_batches for step in steps),
        loader_wait_ms=max((wait for wait in waits if wait is not None), default=None),
        new_shape=new_shape,
        tags=sorted({tag for step in steps for tag in step.tags}),
    )


def _total(values: Iterable[int | None]) -> int | None:
    """The sum, or None when any part is unknown."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return sum(known) if len(known) == len(listed) else None


def memory_peak(ranks: Sequence[RankObservation]) -> MemoryPeak:
    """The most memory any rank held."""
    records = [rank.memory for rank in ranks if rank.memory is not None]

    def most(name: str) -> int | None:
        return max((v for r in records if (v := getattr(r, name)) is not None), default=None)

    return MemoryPeak(
        allocated_bytes=most("peak_allocated_bytes"),
        reserved_bytes=most("peak_reserved_bytes"),
        host_rss_bytes=most("host_peak_rss_bytes"),
        device_bytes=most("device_bytes"),
    )


def steadiness(trial: Trial) -> Steady:
    """Where one launch has settled."""
    steps = trial.steps
    return find_steady(
        [step.slowest_ms for step in steps],
        [step.tags for step in steps],
        work=[step.tokens for step in steps],
        new_shape=[] if trial.compiling else [step.new_shape for step in steps],
        counted=_counted(trial),
    )


def _counted(trial: Trial, paused: frozenset[str] = frozenset()) -> frozenset[str]:
    """Tags of steps that count although they are mostly left out."""
    return paused | {"compile"} if trial.compiling else paused


def choose_unit(trials: Sequence[Trial]) -> UnitChoice:
    """The unit for all timing launches of a comparison."""
    known = all(step.real_tokens is not None for trial in trials for step in trial.steps)
    difference = _work_difference(trials)
    if difference:
        if known:
            return UnitChoice("useful tokens/s", difference)
        if _random_batches(trials):
            return UnitChoice("steps/s", "every launch draws other batches, of the same size on average")
        return UnitChoice("ms/step", f"{difference}, and the real tokens are not known", comparable=False)
    if compiling := [trial for trial in trials if trial.compiling]:
        share = fmean(sum("compile" in s.tags for s in t.steps) / len(t.steps) for t in compiling)
        reason = (
            f"{share:.0%} of the first arm's steps compile, so total time counts; it holds for such steps"
        )
        return UnitChoice("useful tokens/s" if known else "steps/s", reason)
    if paused := pauses_compared(trials):
        reason = f"{' and '.join(sorted(paused))} steps are fewer in one arm, so total time counts"
        return UnitChoice("useful tokens/s" if known else "steps/s", reason)
    tagged = {
        trial.steps[place].index
        for trial in trials
        for place in excluded_positions([step.tags for step in trial.steps])
        if place < len(trial.steps)
    }
    bursts = max((_burst(launches, tagged) for launches in _by_arm(trials).values()), default=1.0)
    if bursts > BURSTS:
        reason = f"steps come in bursts (mean {bursts:.2f}x the median), so total time counts"
        return UnitChoice("useful tokens/s" if known else "steps/s", reason)
    return UnitChoice("ms/step", "every arm does the same work in a step")


def pauses_compared(trials: Iterable[Trial]) -> frozenset[str]:
    """Pauses that one arm makes again and again and another at most half as often: they are the change."""
    arms = _by_arm(list(trials))
    found = set()
    for tag in _PAUSES:
        counts = [
            median(sum(tag in step.tags for step in trial.steps[1:]) for trial in launches)
            for launches in arms.values()
        ]
        if counts and max(counts) >= 2 and min(counts) <= max(counts) / 2:
            found.add(tag)
    return frozenset(found)


def _by_arm(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    arms: dict[str, list[Trial]] = {}
    for trial in trials:
        arms.setdefault(trial.arm, []).append(trial)
    return arms


def _work_difference(trials: Sequence[Trial]) -> str:
    """What differs in the work of the same step between launches; empty when nothing known does."""
    words = {
        "real_tokens": "steps hold different amounts of real tokens",
        "examples": "steps hold different numbers of examples",
        "tokens": "batches are shaped differently",
        "micro_batches": "steps are split into different numbers of micro-batches",
    }
    for name, sentence in words.items():
        seen: dict[int, int] = {}
        for trial in trials:
            for step in trial.steps:
                value = getattr(step, name)
                if value is not None and seen.setdefault(step.index, value) != value:
                    return sentence
    return ""


def _random_batches(trials: Sequence[Trial]) -> bool:
    """The work of a step differs between launches of one arm, and not on average between arms."""
    arms = _by_arm(trials)
    if not any(_work_difference(launches) for launches in arms.values()):
        return False
    for name in ("tokens", "examples", "micro_batches"):
        means = []
        for launches in arms.values():
            known = [v for trial in launches for s in trial.steps if (v := getattr(s, name)) is not None]
            means += [fmean(known)] if known else []
        if means and max(means) > SAME_WORK * min(means):
            return False
    return True


def _burst(launches: Sequence[Trial], tagged: set[int]) -> float:
    """Mean against median step, the median over launches: one disturbed launch makes no burst."""
    shares = []
    for trial in launches:
        values = [step.slowest_ms for step in trial.steps if step.index not in tagged]
        if len(values) >= LEAST_STEPS and median(values) > 0:
            shares.append(fmean(values) / median(values))
    return median(shares) if shares else 1.0


def block_figures(
    trials: Mapping[str, Trial], unit: Unit, paused: frozenset[str] = frozenset()
) -> dict[str, RunFigure]:
    """The figure of each arm in one block; arms without a steady state are missing.

    Steps that correspond (the same examples in the same step of every arm) are used or left out on every side
    alike, so that no arm is timed on easier batches. Steps with one of the `paused` tags count.
    """
    own: dict[str, tuple[int, set[int]]] = {}
    for arm, trial in trials.items():
        steady = steadiness(trial)
        if steady.start is None:
            return {}
        out = excluded_positions([step.tags for step in trial.steps], _counted(trial, paused))
        first = trial.steps[steady.start].index
        own[arm] = first, {s.index for i, s in enumerate(trial.steps) if i not in out and s.index >= first}
    shared = set.intersection(*(used for _, used in own.values())) if _steps_correspond(trials) else set()
    if paused:
        shared = _whole_periods(trials.values(), paused, shared)
    figures = {}
    for arm, trial in trials.items():
        first, used = own[arm]
        chosen = shared if len(shared) >= LEAST_STEPS else used
        steps = [step for step in trial.steps if step.index in chosen]
        start = min(step.index for step in steps)
        figures[arm] = RunFigure(
            label=trial.label,
            steady_from=start,
            steps_used=len(steps),
            steps_excluded=sum(step.index >= start for step in trial.steps) - len(steps),
            value=run_value(steps, unit),
        )
    return figures


def _whole_periods(trials: Iterable[Trial], paused: frozenset[str], shared: set[int]) -> set[int]:
    """The shared steps after the first pause up to the last: each pause counts with the steps between.

    All of them where there are too few.
    """
    pauses = [
        [
            s.index
            for s in trial.steps
            if paused.intersection(s.tags) and s.index >= min(shared, default=0) - 1
        ]
        for trial in trials
    ]
    most = max(pauses, key=len)
    inside = {index for index in shared if most and most[0] < index <= most[-1]}
    return inside if len(inside) >= LEAST_STEPS else shared


def _steps_correspond(trials: Mapping[str, Trial]) -> bool:
    """The same step holds the same examples in every arm, as far as is known."""
    for name in ("real_tokens", "examples"):
        seen: dict[int, int] = {}
        for trial in trials.values():
            for step in trial.steps:
                value = getattr(step, name)
                if value is not None and seen.setdefault(step.index, value) != value:
                    return False
    return True


def run_value(steps: Sequence[TrialStep], unit: Unit) -> float:
    """The figure of one launch over its counted steps."""
    durations = [step.slowest_ms for step in steps]
    if unit == "ms/step":
        return median(durations)
    seconds = sum(durations) / 1000
    if unit == "steps/s":
        return len(steps) / seconds
    return sum(step.real_tokens or 0 for step in steps) / seconds


def log_ratio(reference: float, candidate: float, unit: Unit) -> float:
    """How many times as fast the candidate is, as a logarithm."""
    gain = math.log(candidate / reference)
    return -gain if unit == "ms/step" else gain


def useful_tokens_per_s(trial: Trial) -> float | None:
    """Useful tokens per second over the steady steps; None where tokens or steadiness are unknown."""
    steady = steadiness(trial)
    if steady.start is None or trial.compiling or any(step.real_tokens is None for step in trial.steps):
        return None
    out = excluded_positions([step.tags for step in trial.steps])
    steps = [s for i, s in enumerate(trial.steps) if i >= (steady.start or 0) and i not in out]
    return run_value(steps, "useful tokens/s") or None


def step_ms(trial: Trial) -> float | None:
    """The median step over the steady steps; None without a steady state."""
    steady = steadiness(trial)
    if steady.start is None or trial.compiling:
        return None
    out = excluded_positions([step.tags for step in trial.steps])
    return run_value([s for i, s in enumerate(trial.steps) if i >= steady.start and i not in out], "ms/step")
