"""Where launches settle, on step times as real jobs show them."""

from __future__ import annotations

import random

from autotune.verify.steady import compiles_to_the_end, find_steady


def noisy(level: float, count: int, seed: int, spread: float = 0.02) -> list[float]:
    rng = random.Random(seed)
    return [level * (1 + spread * rng.gauss(0, 1)) for _ in range(count)]


def plain(count: int) -> list[list[str]]:
    return [[] for _ in range(count)]


def test_first_step_never_counts() -> None:
    steps = [93_000.0, *noisy(700, 19, 1)]
    assert find_steady(steps, plain(20)).start == 1
    assert find_steady(noisy(700, 20, 2), plain(20)).start == 1


def test_warm_up_ends_where_the_level_is_reached() -> None:
    steps = [93_000.0, 2_000.0, 1_500.0, 1_200.0, *noisy(700, 16, 3, 0.01)]
    assert find_steady(steps, plain(20)).start == 4


def test_a_lone_spike_is_no_warm_up() -> None:
    steps = noisy(100, 30, 4)
    steps[12] = 900.0
    assert find_steady(steps, plain(30)).start == 1


def test_still_getting_faster_is_no_steady_state() -> None:
    steps = [30_000 * 0.9**i for i in range(24)]
    found = find_steady(steps, plain(24))
    assert found.start is None and found.kind == "no-steady-state" and "shorter" in found.reason


def test_getting_slower_is_no_steady_state() -> None:
    steps = [100 + 4 * i for i in range(30)]
    found = find_steady(steps, plain(30))
    assert found.start is None and "longer" in found.reason


def test_a_short_launch_that_slows_down_is_no_steady_state() -> None:
    steps = [900.0, *(100.0 * 1.03**i for i in range(11))]
    assert find_steady(steps, plain(12)).kind == "no-steady-state"
    lost = sum(find_steady(noisy(100, 12, seed, 0.15), plain(12)).start is None for seed in range(1000))
    assert lost <= 5


# A start of a small Trainer job that groups by length, from the longest on: tokens and ms of each step.
SORTED = """
1024 288 1024 745 832 141 748 132 600 105 544 98 508 93 464 83 428 78 408 74 380 69 368 67 344 65
332 67 308 62 296 61 288 57 272 55 260 55 248 57 236 54 224 51 220 52 216 53 208 46 200 45 192 47
188 47 180 59 172 45 168 57 160 42 156 38 148 44 144 41 136 40 128 38 120 39 116 39 112 32 108 34
108 34 100 32 84 29 76 27
"""


def test_batches_that_get_shorter_make_no_trend_of_the_steps() -> None:
    numbers = [int(word) for word in SORTED.split()]
    work, steps = numbers[::2], [float(ms) for ms in numbers[1::2]]
    assert find_steady(steps, plain(len(steps))).kind == "no-steady-state"
    found = find_steady(steps, plain(len(steps)), work=work)
    assert found.start is not None and found.start <= 6, found.reason


def _unsteady_of_100(growth: float, ordered: bool) -> int:
    """How many of 100 launches have no steady state: a fixed cost, one for the tokens, and noise."""
    found = 0
    for seed in range(100):
        source = random.Random(seed)
        lengths = [source.randrange(200, 1000) for _ in range(40)]
        lengths = sorted(lengths, reverse=True) if ordered else lengths
        noise = [source.lognormvariate(0, 0.03) for _ in lengths]
        steps = [(20 + 0.1 * n) * growth**i * x for i, (n, x) in enumerate(zip(lengths, noise, strict=True))]
        found += find_steady(steps, plain(40), work=lengths).start is None
    return found


def test_a_trend_is_told_from_what_the_batches_hold() -> None:
    assert _unsteady_of_100(1.0, ordered=True) <= 2
    assert _unsteady_of_100(1.0, ordered=False) <= 2
    assert _unsteady_of_100(1.01, ordered=False) >= 50  # 14 % over the second half


def test_noise_is_hardly_ever_taken_for_a_trend() -> None:
    lost = sum(find_steady(noisy(100, 20, seed, 0.15), plain(20)).start is None for seed in range(1000))
    assert lost <= 5


def test_a_machine_that_wanders_for_a_while_makes_no_trend_of_many_steps() -> None:
    def wandering(seed: int) -> list[float]:
        rng, mood, steps = random.Random(seed), 0.0, []
        for _ in range(128):
            mood = 0.9 * mood + rng.gauss(0, 0.05)
            steps.append(100 * (1 + mood + rng.gauss(0, 0.05)))
        return steps

    lost = sum("still" in find_steady(wandering(seed), plain(128)).reason for seed in range(300))
    assert lost <= 20  # a third of them, were each step a witness of its own
    growing = [
        [value * 1.003**i for i, value in enumerate(noisy(100, 128, seed, 0.05))] for seed in range(100)
    ]
    assert sum("longer" in find_steady(steps, plain(128)).reason for steps in growing) >= 95


def test_batch_shapes_are_no_trend() -> None:
    """Examples sorted by length: steps get longer because there is more in them."""
    tokens = [400.0 + 60 * i for i in range(30)]
    steps = [0.5 * t + n for t, n in zip(tokens, noisy(5, 30, 5), strict=True)]
    assert find_steady(steps, plain(30)).start is None
    assert find_steady(steps, plain(30), work=tokens).start is not None


def test_alternating_and_bursting_steps_are_steady() -> None:
    alternating = [100.0 if i % 2 else 500.0 for i in range(24)]
    assert find_steady(alternating, plain(24)).start is not None
    bursts = [4000.0 if i % 4 == 0 else 100.0 for i in range(32)]  # four workers slower than the model
    assert find_steady(bursts, plain(32)).start is not None


def test_compilation_at_each_new_shape_has_no_steady_state() -> None:
    new = [i % 3 == 0 for i in range(30)]
    steps = [20_000.0 if flag else 1_000.0 for flag in new]
    found = find_steady(steps, plain(30), new_shape=new)
    assert found.start is None and "new batch shape" in found.reason
    # The same times with the slow steps not at the new shapes: a loader in bursts.
    assert find_steady(steps, plain(30), new_shape=[i % 3 == 1 for i in range(30)]).start is not None


def test_mostly_compiling_is_no_steady_state() -> None:
    tags = [["compile"] if i < 17 else [] for i in range(20)]
    found = find_steady(noisy(900, 20, 6), tags)
    assert found.start is None and found.kind == "no-steady-state" and "17 of 20" in found.reason


def test_too_few_steps_is_not_the_same_as_restless() -> None:
    found = find_steady(noisy(100, 4, 7), plain(4))
    assert found.start is None and found.kind == "too-few-steps"


def test_garbage_collected_every_step_stays_in_the_figure() -> None:
    assert find_steady(noisy(100, 20, 9), [["gc"]] * 20).start == 1
    rare = [["gc"] if i == 1 else [] for i in range(20)]
    assert find_steady(noisy(100, 20, 9), rare).start == 2


def test_a_start_that_compiles_is_no_compilation_to_the_end() -> None:
    assert compiles_to_the_end([["compile"] if i % 4 else [] for i in range(11)])
    assert not compiles_to_the_end([["compile"] if i < 7 else [] for i in range(11)])
    assert not compiles_to_the_end([["compile"]] * 4)


def test_steps_with_a_collection_count_where_few_steps_are_left() -> None:
    """Eleven steps of a packed 27B model, 5 of them warming up, two of the others with a collection."""
    times = [11632.0, 3809, 1684, 1803, 2107, 1570, 1750, 2146, 2334, 1665, 1776]
    tags = [["compile"], ["warmup"], ["warmup"], ["warmup"], ["compile"], [], [], ["gc"], ["gc"], [], []]
    tags = [[*step, "warmup"] if i < 5 and "warmup" not in step else step for i, step in enumerate(tags)]
    assert find_steady(times, tags).start == 5
