"""How long a comparison takes, told before it is spent."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from autotune.records.observation import Observation
from autotune.verify.arm import VerifyOptions
from autotune.verify.figures import trial_steps
from autotune.verify.stats import LARGE_EFFECT, SMALL_EFFECT_PAIRS
from autotune.verify.steady import LEAST_STEPS, excluded_positions

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
    observation: Observation, options: VerifyOptions, *, arms: int = 2, ratio: float | None = None
) -> PlanEstimate | None:
    """Minutes a comparison with `arms` arms takes on this job; None when the observation has no step.

    `ratio` is the speed-up expected of the candidates: it shortens their launches and, above 1.3, the fewest
    blocks.
    """
    cost = launch_cost(observation)
    if cost is None:
        return None
    gain = max(ratio or 1.0, 0.1)
    timed = _timed_steps(options, cost.step_s) + options.warmup_steps
    block_s = cost.launch_s(timed) + (arms - 1) * cost.launch_s(timed, gain)
    parity_s, parity_launches = _parity(cost, options, gain)
    again_s, again_launches = _again(cost, options)
    pairs = 2 if gain > LARGE_EFFECT else max(options.min_pairs, SMALL_EFFECT_PAIRS)
    least = min(pairs, options.max_pairs)
    # Parity fills the caches of both arms.
    warm_s, warm_launches = (block_s, arms) if options.tier is None else (0.0, 0)
    common, launches = parity_s + warm_s, parity_launches + warm_launches
    most = (common + again_s + options.max_pairs * block_s) / 60
    if options.max_minutes is not None:
        most = min(most, max(options.max_minutes, common / 60))
    return PlanEstimate(
        minutes_least=round(min((common + least * block_s) / 60, most), 2),
        minutes_most=round(most, 2),
        launches_least=launches + least * arms,
        launches_most=launches + again_launches + options.max_pairs * arms,
    )


def _timed_steps(options: VerifyOptions, step_s: float) -> int:
    if options.timing_budget_s is None or step_s <= 0:
        return options.steps
    return min(options.steps, max(LEAST_STEPS, round(options.timing_budget_s / step_s)))


def _parity(cost: _LaunchCost, options: VerifyOptions, gain: float) -> tuple[float, int]:
    if options.tier is None:
        return 0.0, 0
    each = len(options.seeds) if options.tier == "statistical" else 1
    steps = round(options.parity_steps * _PARITY_SLOWER)
    return each * (cost.launch_s(steps) + cost.launch_s(steps, gain)), 2 * each


def _again(cost: _LaunchCost, options: VerifyOptions) -> tuple[float, int]:
    """The baseline once more, for its own noise, where a change does not pass without that."""
    if options.tier in (None, "statistical"):
        return 0.0, 0
    return cost.launch_s(round(options.parity_steps * _PARITY_SLOWER)), 1
