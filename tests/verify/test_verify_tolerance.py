"""Tolerances learned from one repeat of a baseline that never repeats itself."""

from __future__ import annotations

import random

from verify_records import LOSSES, evidence, parity_steps

from autotune.records.verdict import ParityEvidence
from autotune.verify.parity import compare
from autotune.verify.tolerance import is_bfloat16, loss_tolerances


def noisy(
    rng: random.Random, arm: str = "baseline", *, shift: float = 0.0, spread: float = 1e-3
) -> ParityEvidence:
    """Losses, gradient norms, sketches and single examples with independent noise."""

    def off() -> float:
        return 1 + shift + spread * rng.gauss(0, 1)

    steps = []
    for step in parity_steps(LOSSES):
        sketch = {
            f"layer{n}.weight": [1.0 * off(), *(value * off() for value in (0.6, -0.8, 0.5, 0.3))]
            for n in range(50)
        }
        examples = {f"{n:02x}": (5.0 * off() * 20, 20.0) for n in range(8)} if step.index < 2 else {}
        changes = {
            "losses": [step.losses[0] * off()],
            "grad_norm": (step.grad_norm or 0.0) * off(),
            "gradient_sketch": sketch,
            "example_losses": examples,
        }
        steps.append(step.model_copy(update=changes))
    return evidence(arm, steps=steps)


def test_a_candidate_as_noisy_as_the_baseline_passes() -> None:
    rng = random.Random(1)
    results = [
        compare(noisy(rng), noisy(rng), noisy(rng, "changed"), tier="numeric").outcome for _ in range(200)
    ]
    assert results.count("equal") >= 194, {word: results.count(word) for word in results}


def test_a_shift_of_ten_times_the_noise_never_passes() -> None:
    rng = random.Random(2)
    for shift in (-0.01, 0.01):
        results = [
            compare(noisy(rng), noisy(rng), noisy(rng, "changed", shift=shift), tier="numeric").outcome
            for _ in range(100)
        ]
        assert results.count("equal") == 0


def test_late_noise_does_not_open_the_first_steps() -> None:
    losses = [5.0] * 20
    again = [5.0 * (1 + (1e-6 if i < 12 else 5e-3)) for i in range(20)]
    tolerances, noises = loss_tolerances(losses, again, "fp32")
    assert tolerances[0] < 2e-5 and tolerances[15] > 1e-2
    assert max(noises) > 4e-3


def test_a_loss_in_bfloat16_is_known_by_its_digits() -> None:
    assert is_bfloat16(2.515625) and not is_bfloat16(2.5163)
    coarse, _ = loss_tolerances([2.515625, 2.5], [2.515625, 2.5], "half")
    fine, _ = loss_tolerances([2.5163, 2.5], [2.5163, 2.5], "half")
    assert coarse[0] > fine[0] + 3e-3
