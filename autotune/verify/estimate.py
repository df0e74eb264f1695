"""How long a comparison takes, told before it is spent."""

from __future__ import annotations

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
    """Seconds of one launch apart from its steps, and of one step."""

    fixed_s: float
    step_s: float

    def launch_s(self, steps: int, ratio: float = 1.0) -> float:
        return self.fixed_s + steps * self.step_s / ratio + _SPARE_S


def launch_cost(observation: Observation) -> _LaunchCost | None:
    """From an earlier launch of the same job; None when it showed no step."""
    steps = trial_steps(observation)
    if not steps:
        return None
    out = excluded_positions([step.tags for step in steps])
    plain = [step.slowest_ms for i, step in enumerate(steps) if i not in out] or [s.slowest_ms for s in steps]
    step_s = median(plain) / 1000
    # Everything the launch took besides its normal steps: start-up, first step, compilation, the end.
    return _LaunchCost(max(0.0, observation.wall_s - step_s * (len(steps) - 1)), step_s)


def estimate_minutes(
    observation: Observation,
    options: VerifyOptions,
    *,
    arms: int = 2,
    ratio: float | None = None,
    finished: Finished | None = None,
) -> PlanEstimate | None:
    """Minutes a comparison with `arms` arms takes on this job; None when the observation has no step.

    `ratio` is the speed-up expected of the candidates: it shortens their launches and, above 1.3, the fewest
    blocks. What is `finished` already takes no time.
    """
    cost = launch_cost(observation)
    if cost is None:
        return None
    gain = max(ratio or 1.0, 0.1)
    timed = _timed_steps(options, cost.step_s) + options.warmup_steps
    each_s = [cost.launch_s(timed, 1.0 if arm == 0 else gain) for arm in range(arms)]
    pairs = 2 if gain > LARGE_EFFECT else max(options.min_pairs, SMALL_EFFECT_PAIRS)
    least = min(pairs, options.max_pairs)
    common = _parity(cost, options, gain, arms, finished)
    if options.tier is None:  # parity fills the caches of all arms
        common += [each_s[arm] for arm in range(arms) if finished is None or not finished.warm(arm)]
    again = _again(cost, options, finished)
    blocks = [
        [each_s[arm] for arm in range(arms) if finished is None or not finished.timing(arm, number)]
        for number in range(1, options.max_pairs + 1)
    ]
    needed = [*common, *(start for block in blocks[:least] for start in block)]
    all_of_them = [*common, *again, *(start for block in blocks for start in block)]
    most = sum(all_of_them) / 60
    if options.max_minutes is not None:
        most = min(most, max(options.max_minutes, sum(common) / 60))
    return PlanEstimate(
        minutes_least=round(min(sum(needed) / 60, most), 2),
        minutes_most=round(most, 2),
        launches_least=len(needed),
        launches_most=len(all_of_them),
    )


def _timed_steps(options: VerifyOptions, step_s: float) -> int:
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
