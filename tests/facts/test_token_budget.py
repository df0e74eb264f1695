"""A budget of padded tokens is seen in the shapes of batches."""

from __future__ import annotations

import random

import pytest

from autotune.facts.job.token_budget import token_budget


def lengths(count: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [max(10, min(4096, int(rng.lognormvariate(6.9, 0.55)))) for _ in range(count)]


def cut(sizes: list[int], budget: int) -> list[tuple[int, int]]:
    batches: list[list[int]] = [[]]
    for size in sizes:
        if batches[-1] and max(*batches[-1], size) * (len(batches[-1]) + 1) > budget:
            batches.append([])
        batches[-1].append(size)
    return [(len(batch), max(batch)) for batch in batches]


@pytest.mark.parametrize("budget", [8192, 16384])
def test_a_budget_is_seen_in_most_windows_of_a_job(budget: int) -> None:
    shapes = cut(lengths(6000, 1), budget)
    windows = [shapes[i : i + 22] for i in range(0, len(shapes) - 22, 22)]
    found = [token_budget(window) for window in windows]
    seen = [value for value in found if value is not None]
    assert len(seen) >= 0.9 * len(found)
    assert all(0.85 * budget <= value <= budget for value in seen)


@pytest.mark.parametrize("examples", [[4] * 22, [4] * 21 + [2], [1, 8] * 11, [3, 5, 2, 8] * 6])
def test_batches_of_any_number_of_random_examples_follow_none(examples: list[int]) -> None:
    sizes = iter(lengths(200, 2))
    shapes = [(count, max(next(sizes) for _ in range(count))) for count in examples]
    assert token_budget(shapes) is None


def test_too_few_batches_one_length_and_odd_shapes_say_nothing() -> None:
    assert token_budget(cut(lengths(20, 3), 8192)[:7]) is None
    assert token_budget([(n, 512) for n in (1, 2, 4, 8, 1, 2, 4, 8)]) is None
    assert token_budget([(4, 3, 32, 32)] * 20) is None
    assert token_budget([(0, 5)] * 20) is None
