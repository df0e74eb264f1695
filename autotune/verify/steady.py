"""Where a launch has settled: the steps that may be called its speed.

The first step is always dropped. Steps with compilation, saving, evaluation or profiling in them do not
count. The launch is steady from the earliest step after which the running median of five steps stays within
2 % of the median of the second half, or within what the scatter of its steps allows. A
launch whose second half still gets faster or slower, or that is slow at every new batch shape, or is mostly
compilation, has no steady state, and no number is taken from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

WINDOW = 5
CLOSE = 0.02
ROOM = 2.25  # median step-to-step changes: four standard errors of a median of five normal values
LEAST_STEPS = 5  # counted steps after settling
ALWAYS_EXCLUDED = frozenset({"first", "warmup", "profiled", "after_profile", "compile"})
SOMETIMES_EXCLUDED = frozenset({"checkpoint", "evaluation", "gc"})  # unless the job does it all the time
ALL_THE_TIME = 1 / 3
TREND = 0.05  # least change between the quarters of the second half that counts as a trend
CERTAIN = 3.3  # standard errors of Kendall's S under no trend: one in a thousand
SLOW = 3.0  # against the median: a step that met something it had to prepare for


@dataclass(frozen=True, slots=True)
class Steady:
    """From which position the launch is steady; `start` is None when it is not, and `reason` says why."""

    start: int | None
    reason: str = ""
    kind: str = "steady"  # steady | too-few-steps | no-steady-state


def excluded_positions(tags: Sequence[Sequence[str]]) -> set[int]:
    """Positions whose step holds work that is not part of a normal step.

    A tag on more than a third of the steps belongs to the normal step (a job that collects garbage every step
    is to be timed with it), except where the step's time says nothing at all about speed.
    """
    usual = {
        tag
        for tag in SOMETIMES_EXCLUDED
        if sum(tag in step for step in tags) > ALL_THE_TIME * max(1, len(tags))
    }
    drop = ALWAYS_EXCLUDED | (SOMETIMES_EXCLUDED - usual)
    return {0} | {i for i, step in enumerate(tags) if drop.intersection(step)}


def find_steady(
    durations_ms: Sequence[float],
    tags: Sequence[Sequence[str]],
    *,
    work: Sequence[float | None] = (),
    new_shape: Sequence[bool | None] = (),
) -> Steady:
    """The first position that counts.

    `work` (tokens with padding per step) takes the effect of batch shapes out of the judgement where every
    step has it; `new_shape` says which steps met a batch shape for the first time in this launch.
    """
    out = excluded_positions(tags)
    usable = [i for i in range(len(durations_ms)) if i not in out]
    if len(usable) < LEAST_STEPS:
        return _too_few(len(durations_ms), tags, len(usable))
    series = _least_spread(durations_ms, usable, work)
    values = [series[i] for i in usable]
    half = len(usable) - max(LEAST_STEPS, len(usable) // 2)
    novel = [new_shape[i] for i in usable[half:]] if len(new_shape) == len(durations_ms) else []
    if fault := _trend(values[half:]) or _slow_at_new_shapes(values[half:], novel):
        return Steady(None, fault, "no-steady-state")
    running = [median(values[k : k + WINDOW]) for k in range(len(values) - WINDOW + 1)]
    centre = median(values[half:])
    settled = running[min(half, len(running) - 1) :]
    scatter = ROOM * median(abs(after - before) for before, after in pairwise(values))
    allowed = max(CLOSE * centre, scatter, *(abs(value - centre) for value in settled))
    start = len(running) - 1
    while start > 0 and abs(running[start - 1] - centre) <= allowed:
        start -= 1
    # The window is accepted by its median: a warm-up step may still stand at its head.
    while start < half and values[start] > 1.5 * centre and values[start] - centre > 2 * allowed:
        start += 1
    return Steady(usable[start])


def _too_few(steps: int, tags: Sequence[Sequence[str]], usable: int) -> Steady:
    compiling = sum("compile" in step for step in tags)
    if compiling > steps / 2 and steps >= LEAST_STEPS:
        return Steady(None, f"{compiling} of {steps} steps were compiling", "no-steady-state")
    return Steady(None, f"only {usable} of {steps} steps can be timed, {LEAST_STEPS} needed", "too-few-steps")


def _least_spread(
    durations: Sequence[float], usable: Sequence[int], work: Sequence[float | None]
) -> Mapping[int, float]:
    """Durations, or durations per unit of work where those vary less."""
    plain = {i: durations[i] for i in usable}
    if len(work) != len(durations) or any(not work[i] for i in usable):
        return plain
    amounts = {i: float(work[i] or 1) for i in usable}
    mean_work = fmean(amounts.values())
    scaled = {i: durations[i] * mean_work / amounts[i] for i in usable}
    return scaled if _spread(list(scaled.values())) < _spread(list(plain.values())) else plain


def _spread(values: Sequence[float]) -> float:
    """Median absolute deviation against the median."""
    centre = median(values)
    return median(abs(value - centre) for value in values) / centre if centre else 0.0


def _trend(values: Sequence[float]) -> str:
    """The second half still changes: by over 5 % between its quarters, and one step after the other."""
    count = len(values)
    if count < 8:
        return ""
    change = median(values[(count + 1) // 2 :]) / median(values[: count // 2]) - 1
    score = sum(
        (later > earlier) - (later < earlier)
        for place, earlier in enumerate(values)
        for later in values[place + 1 :]
    )
    certain = CERTAIN * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    if abs(change) <= TREND or abs(score) < certain:
        return ""
    word = "shorter" if change < 0 else "longer"
    return f"steps were still getting {word} at the end ({change:+.0%} within the last {count} steps)"


def _slow_at_new_shapes(values: Sequence[float], novel: Sequence[bool | None]) -> str:
    """Slow steps are those that met a new batch shape, and the others are not slow: it compiles per shape."""
    if len(novel) != len(values) or any(flag is None for flag in novel):
        return ""
    slow = [value > SLOW * median(values) for value in values]
    met = sum(s and bool(n) for s, n in zip(slow, novel, strict=True))
    new = sum(bool(n) for n in novel)
    if sum(slow) >= 3 and met == sum(slow) and new < len(values) and met >= 0.8 * new:
        return (
            f"{met} of the last {len(values)} steps met a new batch shape and took over {SLOW:g}x the median"
        )
    return ""
