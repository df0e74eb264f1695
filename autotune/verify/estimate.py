"""How long a comparison takes, told before it is spent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from autotune.records.observation import Observation
from autotune.verify.arm import VerifyOptions
from autotune.verify.figures import trial_steps
from autotune.verify.stats import LARGE_EFFECT, SMALL_EFFECT_PAIRS
from autotune.verify.steady import LEAST_STEPS, excluded_positions

if TYPE_CHECKING:
    from autotune.verify.starts import Finished

MOST_LONGER = 16  # as in the probe, which imports nothing of the package
_PARITY_SLOWER = 1.3  # reading every loss and gradient costs something
_SPARE_S = 1.0  # between launches


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """Bounds: the fewest launches that can decide, and all that may be made."""

    minutes_least: float
    minutes_most: float
    launches_least: int
    launches_most: int


@dataclass(frozen=True, slots=True)
class _LaunchCost:
    """Seconds of one launch apart from its steps, of one step, and what each of the first ones took on top.

    What the first steps take on top (compilation, a pause) comes in a short launch only as far as it goes.
    """

    fixed_s: float
    step_s: float
    excess_s: tuple[float, ...] = ()

    def launch_s(self, steps: int, ratio: float = 1.0) -> float:
        return self.fixed_s + sum(self.excess_s[:steps]) + steps * self.step_s / ratio + _SPARE_S


def launch_cost(observation: Observation) -> _LaunchCost | None:
    """From an earlier launch of the same job; None when it showed no step."""
    steps = trial_steps(observation)
    if not steps:
        return None
    out = excluded_positions([step.tags for step in steps])
    plain = [step.slowest_ms for i, step in enumerate(steps) if i not in out] or [s.slowest_ms for s in steps]
    step_s = median(plain) / 1000
    every_s = [step.slowest_ms / 1000 for step in steps]
    fixed_s = max(0.0, observation.wall_s - sum(every_s))  # start-up and the end
    profiled = [step_s if {"profiled", "after_profile"} & set(step.tags) else None for step in steps]
    excess = [max(0.0, (one or seen) - step_s) for one, seen in zip(profiled, every_s, strict=True)]
    return _LaunchCost(fixed_s, step_s, tuple(excess))


def estimate_minutes(
    observation: Observation,
    options: VerifyOptions,
    *,
    arms: int = 2,
    ratio: float | None = None,
    finished: Finished | None = None,
) -> PlanEstimate | None:
    """Minutes a comparison with `arms` arms takes on this job; None when the observation has no step.

    `ratio` is the speed-up expected of the candidates: in the least that it takes it shortens their launches
    and, above 1.3, the fewest blocks. The most is what it takes when they bring nothing. What is `finished`
    already takes no time.
    """
    cost = launch_cost(observation)
    if cost is None:
        return None
    gain = max(ratio or 1.0, 0.1)
    timed = timed_steps(options, cost.step_s) + options.warmup_steps
    pairs = 2 if gain > LARGE_EFFECT else max(options.min_pairs, SMALL_EFFECT_PAIRS)
    least = min(pairs, options.max_pairs)

    def starts(gain: float, pairs: int) -> tuple[list[float], list[float]]:
        """Seconds of each launch before the blocks, and of each in them."""
        each_s = [cost.launch_s(timed, gain if arm else 1.0) for arm in range(arms)]
        common = _parity(cost, options, gain, arms, finished)
        if options.tier is None:  # parity fills the caches of all arms
            common += [each_s[arm] for arm in range(arms) if finished is None or not finished.warm(arm)]
        blocks = [
            each_s[arm]
            for number in range(1, pairs + 1)
            for arm in range(arms)
            if finished is None or not finished.timing(arm, number)
        ]
        return common, blocks

    common, blocks = starts(gain, least)
    needed = [*common, *blocks]
    common, blocks = starts(min(gain, 1.0), options.max_pairs)
    all_of_them = [*common, *_again(cost, options, finished), *blocks]
    most = sum(all_of_them) / 60
    if options.max_minutes is not None:
        most = min(most, max(options.max_minutes, sum(common) / 60))
    return PlanEstimate(
        minutes_least=round(min(sum(needed) / 60, most), 2),
        minutes_most=round(most, 2),
        launches_least=len(needed),
        launches_most=len(all_of_them),
    )


def timed_steps(options: VerifyOptions, step_s: float) -> int:
    """As the probe decides it in the launch."""
    if step_s > 0 and options.steps * step_s < (options.timing_least_s or 0.0):
        return min(MOST_LONGER * options.steps, math.ceil((options.timing_least_s or 0.0) / step_s))
    if options.timing_budget_s is None or step_s <= 0:
        return options.steps
    return min(options.steps, max(LEAST_STEPS, round(options.timing_budget_s / step_s)))


def _parity(
    cost: _LaunchCost, options: VerifyOptions, gain: float, arms: int, finished: Finished | None
) -> list[float]:
    """Seconds of each launch that compares training: of the first and of the last arm, at every seed."""
    if options.tier is None:
        return []
    seeds = options.seeds if options.tier == "statistical" else (options.seed,)
    steps = round(options.parity_steps * _PARITY_SLOWER)
    return [
        cost.launch_s(steps, gain if arm else 1.0)
        for number, seed in enumerate(seeds, 1)
        for arm in (0, arms - 1)
        if finished is None or not finished.parity(arm, number, seed)
    ]


def _again(cost: _LaunchCost, options: VerifyOptions, finished: Finished | None) -> list[float]:
    """The baseline once more, for its own noise, where a change does not pass without that."""
    if options.tier in (None, "statistical") or (finished and finished.parity(0, 2, options.seed)):
        return []
    return [cost.launch_s(round(options.parity_steps * _PARITY_SLOWER))]
