"""How many times as fast, how sure, and when enough has been measured.

The pair (one launch of each arm, next to each other in time) is the observation, never the step: steps of
one process are not independent, and pooling them over launches finds wins that are not there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from autotune.records.verdict import SpeedOutcome

CONFIDENCE = 0.98  # two-sided: one false win in a hundred at most, however noisy the machine
LEAST_GAIN = 1.015  # an estimate below this is not called faster
SAME_LOW, SAME_HIGH = 0.98, 1.02  # the whole interval inside: no measurable change
LARGE_EFFECT = 1.3  # from here on two pairs may do
SMALL_EFFECT_PAIRS = 3  # at least, below
NARROW = 0.01  # half width (log) that settles every question of the four outcomes
RELATIVE_WIDTH = 1 / 3  # half width against the effect that settles a visible one


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio with its t interval; infinite bounds when one pair gives no spread."""

    ratio: float
    low: float
    high: float
    pairs: int

    @property
    def half_width(self) -> float:
        """Half the width of the interval on the log scale; about the relative half width."""
        return math.inf if self.pairs < 2 else (math.log(self.high) - math.log(self.low)) / 2


def interval(log_ratios: Sequence[float]) -> Interval | None:
    """The t interval on paired log ratios; None without pairs."""
    if not log_ratios:
        return None
    mean = fmean(log_ratios)
    if len(log_ratios) < 2:
        return Interval(math.exp(mean), 0.0, math.inf, 1)
    half = t_quantile(len(log_ratios) - 1) * stdev(log_ratios) / math.sqrt(len(log_ratios))
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(log_ratios))


def decide(result: Interval | None) -> SpeedOutcome:
    """The word for an interval.

    Faster when the lower bound is above 1.00 and the estimate at least 1.015, slower mirrored, no measurable
    change when the whole interval lies in 0.98-1.02, else undecided.
    """
    if result is None or result.pairs < 2:
        return "undecided"
    if result.low > 1.0 and result.ratio >= LEAST_GAIN:
        return "faster"
    if result.high < 1.0 and result.ratio <= 1 / LEAST_GAIN:
        return "slower"
    if result.low >= SAME_LOW and result.high <= SAME_HIGH:
        return "no-measurable-change"
    return "undecided"


def enough(log_ratios: Sequence[float], *, min_pairs: int, max_pairs: int) -> bool:
    """Whether to stop measuring: decided by the width of the interval, never by what it excludes.

    Two pairs suffice only for an effect above 1.3x whose interval is narrow against it: with one degree of
    freedom the interval reaches 32 standard errors to each side, so only repeatable launches get there.
    """
    pairs = len(log_ratios)
    if pairs >= max_pairs:
        return True
    result = interval(log_ratios)
    if result is None or pairs < 2:
        return False
    effect = abs(math.log(result.ratio))
    if effect >= math.log(LARGE_EFFECT):
        return result.half_width <= effect / 2
    least = max(min_pairs, SMALL_EFFECT_PAIRS)
    return pairs >= least and result.half_width <= max(NARROW, effect * RELATIVE_WIDTH)


def block_order(arms: Sequence[str], number: int) -> list[str]:
    """The order of the arms in block `number` (from 1): rotated, so that two arms run AB BA AB."""
    shift = (number - 1) % len(arms)
    return [*arms[shift:], *arms[:shift]]


def t_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """The two-sided quantile of Student's t."""
    from scipy.special import stdtrit  # the one function; scipy.stats takes a second to import

    return float(stdtrit(degrees, 0.5 + confidence / 2))


def sign_test(positive: int, total: int) -> float:
    """Two-sided p value of `positive` heads in `total` throws of a fair coin; 1.0 for none."""
    if total == 0:
        return 1.0
    rare = min(positive, total - positive)
    tail: float = sum(math.comb(total, k) for k in range(rare + 1)) / 2**total
    return min(1.0, 2 * tail)
