"""The interval, the four words, the stopping rule, and how often they are wrong under a noise model."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.verify import stats


def test_interval_matches_a_hand_calculation() -> None:
    result = stats.interval([math.log(1.30), math.log(1.32), math.log(1.34)])
    assert result is not None
    # mean 0.27758, sd 0.015155, t(0.99, 2) = 6.96456: half width 0.06094
    assert result.ratio == pytest.approx(1.3199, abs=1e-4)
    assert result.low == pytest.approx(1.2419, abs=2e-4)
    assert result.high == pytest.approx(1.4028, abs=2e-4)
    assert result.half_width == pytest.approx(0.06094, abs=1e-4)


def test_one_pair_or_none_decides_nothing() -> None:
    assert stats.interval([]) is None
    assert stats.decide(None) == "undecided"
    alone = stats.interval([math.log(3.0)])
    assert alone is not None and stats.decide(alone) == "undecided"
    assert not stats.enough([math.log(3.0)], min_pairs=3, max_pairs=8)


@pytest.mark.parametrize(
    ("ratio", "low", "high", "word"),
    [
        (1.31, 1.27, 1.35, "faster"),
        (1.012, 1.003, 1.021, "undecided"),  # above 1, but too small to claim, and not within 2 %
        (1.012, 1.005, 1.019, "no-measurable-change"),
        (1.05, 0.99, 1.11, "undecided"),
        (1.0, 0.99, 1.01, "no-measurable-change"),
        (0.80, 0.75, 0.85, "slower"),
        (0.99, 0.984, 0.996, "no-measurable-change"),
        (1.0, 0.9, 1.1, "undecided"),
    ],
)
def test_words(ratio: float, low: float, high: float, word: str) -> None:
    assert stats.decide(stats.Interval(ratio, low, high, 5)) == word


def test_two_pairs_suffice_only_for_large_repeatable_effects() -> None:
    assert stats.enough([math.log(2.0), math.log(2.02)], min_pairs=3, max_pairs=8)
    assert not stats.enough([math.log(2.0), math.log(2.6)], min_pairs=3, max_pairs=8)  # too unlike
    assert not stats.enough([math.log(1.10), math.log(1.10)], min_pairs=3, max_pairs=8)  # too small
    stopped = stats.interval([math.log(2.0), math.log(2.02)])
    assert stats.decide(stopped) == "faster"


def test_growth_looks_at_the_width_and_ends_at_the_limit() -> None:
    wide = [math.log(x) for x in (0.97, 1.0, 1.05)]
    assert not stats.enough(wide, min_pairs=3, max_pairs=8)
    assert stats.enough(wide, min_pairs=3, max_pairs=3)
    narrow = [math.log(x) for x in (0.9995, 1.0, 1.0005)]
    assert stats.enough(narrow, min_pairs=3, max_pairs=8)
    assert stats.decide(stats.interval(narrow)) == "no-measurable-change"


def test_blocks_rotate() -> None:
    assert [stats.block_order(["a", "b"], n) for n in (1, 2, 3)] == [["a", "b"], ["b", "a"], ["a", "b"]]
    assert [stats.block_order(["a", "b", "c"], n)[0] for n in (1, 2, 3, 4)] == ["a", "b", "c", "a"]


def test_sign_test() -> None:
    assert stats.sign_test(10, 10) == pytest.approx(2 / 1024)
    assert stats.sign_test(5, 10) == 1.0
    assert stats.sign_test(0, 0) == 1.0


def simulated_log_ratios(
    true_ratio: float, trials: int, pairs: int, *, noise: float, seed: int
) -> np.ndarray:
    """Log ratios of alternating launches: [trials, pairs].

    Per launch a level shift of 0.6 %, slow machine drift of +-3 % (a sine of random phase and period over the
    whole session), 40 steps that wander (AR(1), 1 %) with 2 % of spikes; the figure of a launch is the median
    of its steps. `noise` scales the level shift and the wander.
    """
    rng = np.random.default_rng(seed)
    runs, steps = 2 * pairs, 40
    level = 0.006 * noise * rng.standard_normal((trials, runs, 1))
    when = np.arange(runs * steps).reshape(1, runs, steps) / (runs * steps)
    cycles, phase = rng.uniform(0.3, 2.0, (trials, 1, 1)), rng.uniform(0, 2 * np.pi, (trials, 1, 1))
    drift = 0.03 * np.sin(2 * np.pi * cycles * when + phase)
    shocks = 0.01 * noise * np.sqrt(1 - 0.5**2) * rng.standard_normal((trials, runs, steps))
    wander = np.zeros_like(shocks)
    wander[..., 0] = 0.01 * noise * rng.standard_normal((trials, runs))
    for i in range(1, steps):
        wander[..., i] = 0.5 * wander[..., i - 1] + shocks[..., i]
    spikes = np.where(
        rng.random((trials, runs, steps)) < 0.02, rng.uniform(0.2, 2.0, (trials, runs, steps)), 0.0
    )
    log_ms = np.median(level + drift + wander + np.log1p(spikes), axis=2)
    first, second = log_ms[:, 0::2], log_ms[:, 1::2]
    swapped = np.arange(pairs) % 2 == 1  # AB BA AB ...
    baseline, candidate = np.where(swapped, second, first), np.where(swapped, first, second)
    ratios: np.ndarray = baseline - (candidate - np.log(true_ratio))
    return ratios


def outcomes(log_ratios: np.ndarray, *, max_pairs: int, min_pairs: int = 3) -> list[tuple[str, int]]:
    """The word of each simulated session and the pairs it took, with the product's own rules."""
    words = []
    for session in log_ratios.tolist():
        taken = 1
        while not stats.enough(session[:taken], min_pairs=min_pairs, max_pairs=max_pairs):
            taken += 1
        words.append((stats.decide(stats.interval(session[:taken])), taken))
    return words


@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_false_wins_are_rare(noise: float) -> None:
    words = outcomes(simulated_log_ratios(1.0, 4000, 8, noise=noise, seed=1), max_pairs=8)
    assert sum(word == "faster" for word, _ in words) / len(words) <= 0.01
    assert sum(word == "slower" for word, _ in words) / len(words) <= 0.01


def test_a_true_three_percent_is_found_at_eight_pairs() -> None:
    sessions = simulated_log_ratios(1.03, 2000, 8, noise=1.0, seed=2)
    grown = outcomes(sessions, max_pairs=8)
    assert sum(word == "faster" for word, _ in grown) / len(grown) >= 0.90
    full = outcomes(sessions, max_pairs=8, min_pairs=8)
    assert sum(word == "faster" for word, _ in full) / len(full) >= 0.90


def test_the_interval_covers_the_truth() -> None:
    sessions = simulated_log_ratios(1.05, 2000, 5, noise=1.0, seed=3)
    results = [stats.interval(session) for session in sessions.tolist()]
    covered = sum(result is not None and result.low <= 1.05 <= result.high for result in results)
    assert covered / len(results) >= 0.96


def test_large_effects_end_after_two_or_three_pairs() -> None:
    words = outcomes(simulated_log_ratios(2.0, 500, 8, noise=1.0, seed=4), max_pairs=8)
    assert all(word == "faster" for word, _ in words)
    assert sum(taken == 2 for _, taken in words) / len(words) >= 0.5
    assert max(taken for _, taken in words) <= 4


def test_pooling_steps_would_find_wins_that_are_not_there() -> None:
    """The reason for pairs: the same data, judged by a standard error over pooled steps."""
    sessions = simulated_log_ratios(1.0, 1000, 5, noise=1.0, seed=5)
    # 200 steps a side with 1 % of spread each: standard error of the difference 0.1 %
    pooled = sessions.mean(axis=1) > 1.96 * 0.01 * math.sqrt(2 / 200)
    assert pooled.mean() >= 0.10
