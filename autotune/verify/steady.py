"""Where a launch has settled: the steps that may be called its speed.

The first step is always dropped. Steps with compilation, saving, evaluation or profiling in them do not
count. The launch is steady from the earliest step after which the running median of five steps stays within
2 % of the median of the second half, or within what the scatter of its steps allows. A
launch whose second half still gets faster or slower, or that is slow at every new batch shape, or is mostly
compilation, has no steady state, and no number is taken from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from autotune.steadiness import NOT_SPEED, at_equal_work, settle, trend

CLOSE = 0.02
LEAST_STEPS = 5  # counted steps after settling
SOMETIMES_EXCLUDED = frozenset({"checkpoint", "evaluation", "gc"})  # unless the job does it all the time
ALL_THE_TIME = 1 / 3
SLOW = 3.0  # against the median: a step that met something it had to prepare for


@dataclass(frozen=True, slots=True)
class Steady:
    """From which position the launch is steady; `start` is None when it is not, and `reason` says why."""

    start: int | None
    reason: str = ""
    kind: str = "steady"  # steady | too-few-steps | no-steady-state


def excluded_positions(tags: Sequence[Sequence[str]], counted: frozenset[str] = frozenset()) -> set[int]:
    """Positions whose step holds work that is not part of a normal step.

    A tag on more than a third of the steps belongs to the normal step (a job that collects garbage every step
    is to be timed with it), except where the step's time says nothing at all about speed. `counted`: tags
    that count although they are rare, for they are what is compared. Collections of garbage come by
    themselves in any job: where too few steps would be left, those with one count as well.
    """
    usual = {
        tag
        for tag in SOMETIMES_EXCLUDED
        if sum(tag in step for step in tags) > ALL_THE_TIME * max(1, len(tags))
    }
    drop = (NOT_SPEED | (SOMETIMES_EXCLUDED - usual)) - counted
    out = _positions(tags, drop)
    return out if len(tags) - len(out) >= LEAST_STEPS else _positions(tags, drop - {"gc"})


def _positions(tags: Sequence[Sequence[str]], drop: frozenset[str]) -> set[int]:
    return {0} | {i for i, step in enumerate(tags) if drop.intersection(step)}


def compiles_to_the_end(tags: Sequence[Sequence[str]]) -> bool:
    """More than half of all steps compile, and of the last half too: not a start that comes to an end."""
    late = tags[len(tags) // 2 :]
    return all(
        len(part) >= LEAST_STEPS and sum("compile" in step for step in part) > len(part) / 2
        for part in (tags, late)
    )


def find_steady(
    durations_ms: Sequence[float],
    tags: Sequence[Sequence[str]],
    *,
    work: Sequence[float | None] = (),
    new_shape: Sequence[bool | None] = (),
    counted: frozenset[str] = frozenset(),
) -> Steady:
    """The first position that counts.

    `work` (tokens with padding per step) takes the effect of batch shapes out of the judgement where every
    step has it; `new_shape` says which steps met a batch shape for the first time in this launch.
    """
    out = excluded_positions(tags, counted)
    usable = [i for i in range(len(durations_ms)) if i not in out]
    if len(usable) < LEAST_STEPS:
        return _too_few(len(durations_ms), tags, len(usable))
    amounts = [work[i] for i in usable] if len(work) == len(durations_ms) else []
    values = at_equal_work([durations_ms[i] for i in usable], amounts)
    found = settle(values, CLOSE)
    late = values[found.half :]
    novel = [new_shape[i] for i in usable[found.half :]] if len(new_shape) == len(durations_ms) else []
    if fault := _still_changing(values, found.half) or _slow_at_new_shapes(late, novel):
        return Steady(None, fault, "no-steady-state")
    return Steady(usable[found.start])


def _too_few(steps: int, tags: Sequence[Sequence[str]], usable: int) -> Steady:
    compiling = sum("compile" in step for step in tags)
    if compiling > steps / 2 and steps >= LEAST_STEPS:
        return Steady(None, f"{compiling} of {steps} steps were compiling", "no-steady-state")
    return Steady(None, f"only {usable} of {steps} steps can be timed, {LEAST_STEPS} needed", "too-few-steps")


def _still_changing(values: Sequence[float], half: int) -> str:
    """The last steps still get longer or shorter."""
    change = trend(values, half)
    if change is None:
        return ""
    word = "shorter" if change < 0 else "longer"
    return f"steps were still getting {word} at the end ({change:+.0%} from half to half of the last ones)"


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
