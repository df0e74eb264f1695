"""Parity by tier: what passes, what fails, what stays undecided and why."""

from __future__ import annotations

import math
import random

import pytest
from verify_records import LOSSES, evidence, isolation, parity_steps

from autotune.records.parity import ParityStep
from autotune.records.verdict import ParityEvidence
from autotune.verify.parity import compare
from autotune.verify.premises import check_examples
from autotune.verify.statistical import compare_statistical


def shifted(frac: float) -> list[float]:
    return [loss * (1 + frac) for loss in LOSSES]


def noise(frac: float) -> list[float]:
    return [loss * (1 + frac * (-1) ** i) for i, loss in enumerate(LOSSES)]


def test_identical_losses_are_bitwise_equal() -> None:
    result = compare(evidence(), evidence(), evidence("changed"), tier="bitwise")
    assert result.outcome == "equal" and result.used == "bitwise"
    assert result.sentence == "losses identical for 12 steps"


def test_one_bit_breaks_bitwise() -> None:
    off = [*LOSSES]
    off[7] = math.nextafter(off[7], 10)
    result = compare(evidence(), evidence(), evidence("changed", off), tier="bitwise")
    assert result.outcome == "broken" and "step 7" in result.sentence


def test_bitwise_falls_to_numeric_when_the_baseline_does_not_repeat() -> None:
    result = compare(
        evidence(), evidence(losses=noise(1e-4)), evidence("changed", noise(2e-4)), tier="bitwise"
    )
    assert result.outcome == "equal" and result.used == "numeric"
    assert any("does not repeat itself" in reason for reason in result.reasons)


@pytest.mark.parametrize(
    ("precision", "off", "outcome"),
    [("fp32", 3e-6, "equal"), ("fp32", 1e-3, "broken"), ("half", 1e-3, "equal"), ("half", 1e-2, "broken")],
)
def test_numeric_floor_by_precision(precision: str, off: float, outcome: str) -> None:
    arms = [evidence(precision=precision), evidence(precision=precision)]
    assert compare(*arms, evidence("changed", noise(off)), tier="numeric").outcome == outcome


def test_tolerance_comes_from_the_baseline_against_itself() -> None:
    noisy = evidence(losses=noise(2e-3))
    assert compare(evidence(), noisy, evidence("changed", noise(-4e-3)), tier="numeric").outcome == "equal"
    assert (
        compare(evidence(), evidence(), evidence("changed", noise(-4e-3)), tier="numeric").outcome == "broken"
    )


def test_a_baseline_far_from_itself_decides_nothing() -> None:
    result = compare(evidence(), evidence(losses=noise(0.05)), evidence("changed"), tier="numeric")
    assert result.outcome == "undecided" and "differs by 5" in result.sentence


@pytest.mark.parametrize("frac", [-0.02, 0.02])
def test_a_lower_loss_fails_like_a_higher_one(frac: float) -> None:
    result = compare(evidence(), evidence(), evidence("changed", shifted(frac)), tier="numeric")
    assert result.outcome == "broken"
    assert ("lower" if frac < 0 else "higher") in result.sentence


def test_a_small_steady_shift_is_a_drift() -> None:
    """Within the tolerance of half precision at every step, but always to the same side."""
    arms = [evidence(precision="half"), evidence(precision="half")]
    result = compare(*arms, evidence("changed", shifted(-1.8e-3)), tier="numeric")
    assert result.outcome == "broken" and "stays lower" in result.sentence
    assert compare(*arms, evidence("changed", noise(1.8e-3)), tier="numeric").outcome == "equal"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"record": {"initial_weights_digest": "other"}}, "different initial weights"),
        ({"record": {"initial_weights_digest": None}}, "could not be read"),
        ({"record": {"dropout_active": True}}, "dropout is active"),
        ({"record": {"seeded": False}}, "could not be seeded"),
        ({"losses": LOSSES[:3]}, "only 3 steps"),
        ({"ranks": 2}, "1 and on 2 ranks"),
        ({"expected_ranks": 4}, "1 of 4 ranks"),
    ],
)
def test_undecided_with_the_reason(changes: dict[str, object], words: str) -> None:
    changed = evidence("changed", **changes)  # type: ignore[arg-type]
    if "losses" not in changes and "ranks" not in changes:
        steps = parity_steps(shifted(0.1))
        changed = changed.model_copy(
            update={"ranks": [rank.model_copy(update={"steps": steps}) for rank in changed.ranks]}
        )
    result = compare(evidence(), evidence(), changed, tier="numeric")
    assert result.outcome == "undecided", result.sentence
    assert words in result.sentence


def test_dropout_drawn_alike_is_proven_by_equal_losses() -> None:
    arms = [evidence(record={"dropout_active": True}) for _ in range(3)]
    assert compare(*arms, tier="bitwise").outcome == "equal"


def test_nan_in_the_baseline_refuses_and_in_the_change_fails() -> None:
    bad = [*LOSSES]
    bad[5] = math.nan
    assert (
        compare(evidence(losses=bad), evidence(losses=bad), evidence(), tier="numeric").outcome == "refused"
    )
    result = compare(evidence(), evidence(), evidence("changed", bad), tier="numeric")
    assert result.outcome == "broken" and "not a number" in result.sentence


def test_wrong_backward_shows_in_the_gradients_of_the_first_step() -> None:
    wrong = parity_steps(
        LOSSES, gradient_sketch={"a.weight": [1.0, 0.6, -0.8], "b.weight": [0.1, 0.09, 0.05]}
    )
    result = compare(evidence(), evidence(), evidence("changed", steps=wrong), tier="numeric")
    assert result.outcome == "broken" and "gradient" in result.sentence


def test_a_parameter_without_gradient_is_named() -> None:
    lost = parity_steps(
        LOSSES, gradient_sketch={"module.a.weight": [1.0, 0.6, -0.8], "b.weight": [0.0, 0.0, 0.0]}
    )
    result = compare(evidence(), evidence(), evidence("changed", steps=lost), tier="numeric")
    assert result.outcome == "broken" and "b.weight" in result.sentence


def test_wrapper_names_do_not_matter() -> None:
    sketch = {"_orig_mod.a.weight": [1.0, 0.6, -0.8], "module.b.weight": [0.1, 0.06, 0.08]}
    wrapped = evidence("changed", steps=parity_steps(LOSSES, gradient_sketch=sketch))
    assert compare(evidence(), evidence(), wrapped, tier="numeric").outcome == "equal"


def test_scaled_gradients_are_told_as_a_factor() -> None:
    """Loss normalisation: the same losses, gradients twice as large."""
    sketch = {"a.weight": [2.0, 1.2, -1.6], "b.weight": [0.2, 0.12, 0.16]}
    scaled = evidence("changed", steps=parity_steps(LOSSES, gradient_sketch=sketch, grad_norm=2.0))
    result = compare(evidence(), evidence(), scaled, tier="numeric")
    assert result.outcome == "broken"
    assert any("2x as large" in reason for reason in result.reasons)


def test_examples_and_labels_must_be_the_same() -> None:
    other = [step.model_copy(update={"examples_digest": "ff"}) for step in parity_steps(LOSSES)]
    result = compare(evidence(), evidence(), evidence("changed", steps=other), tier="token-exact")
    assert result.outcome == "broken" and "other examples" in result.sentence
    fewer = [step.model_copy(update={"supervised_tokens": 99}) for step in parity_steps(LOSSES)]
    result = compare(evidence(), evidence(), evidence("changed", steps=fewer), tier="token-exact")
    assert result.outcome == "broken" and "99 instead of 100 labels" in result.sentence


def test_example_digests_add_up_over_ranks() -> None:
    """The same examples, dealt to the ranks in another way."""

    def two(first: int, second: int) -> object:
        base = evidence(ranks=2)
        ranks = [
            rank.model_copy(
                update={
                    "steps": [
                        s.model_copy(update={"examples_digest": f"{d + s.index:032x}"}) for s in rank.steps
                    ]
                }
            )
            for rank, d in zip(base.ranks, (first, second), strict=True)
        ]
        return base.model_copy(update={"ranks": ranks})

    same = compare(two(10, 50), two(10, 50), two(50, 10), tier="token-exact")  # type: ignore[arg-type]
    assert same.outcome == "equal"
    other = compare(two(10, 50), two(10, 50), two(50, 11), tier="token-exact")  # type: ignore[arg-type]
    assert other.outcome == "broken"


def test_packed_rows_need_isolation() -> None:
    packed = evidence("changed", packed=True)
    assert compare(evidence(), evidence(), packed, tier="token-exact").outcome == "undecided"
    tight = evidence("changed", packed=True, record={"isolation": [isolation()]})
    result = compare(evidence(), evidence(), tight, tier="token-exact")
    assert result.outcome == "equal" and "all others exactly equal" in result.sentence
    leak = evidence("changed", packed=True, record={"isolation": [isolation(after=1e-5)]})
    result = compare(evidence(), evidence(), leak, tier="token-exact")
    assert result.outcome == "broken" and "leak" in result.sentence
    future = evidence("changed", packed=True, record={"isolation": [isolation(before=0.3)]})
    assert "later ones" in compare(evidence(), evidence(), future, tier="token-exact").sentence


def test_isolation_zero_is_the_machines_own_spread() -> None:
    jitter = evidence("changed", packed=True, record={"isolation": [isolation(after=2e-6, repeat=1e-6)]})
    assert compare(evidence(), evidence(), jitter, tier="token-exact").outcome == "equal"
    leak = evidence("changed", packed=True, record={"isolation": [isolation(after=6e-3, repeat=1e-6)]})
    assert compare(evidence(), evidence(), leak, tier="token-exact").outcome == "broken"


def test_a_leaking_baseline_is_said_to_be_incorrect() -> None:
    leaking = [evidence(packed=True, record={"isolation": [isolation(after=0.4)]}) for _ in range(2)]
    fixed = evidence("changed", shifted(0.01), packed=True, record={"isolation": [isolation()]})
    result = compare(*leaking, fixed, tier="token-exact")
    assert result.outcome == "baseline-incorrect"
    assert "mixes packed examples" in result.sentence and "0.4" in result.sentence
    untouched = evidence("changed", packed=True, record={"isolation": [isolation(after=0.4)]})
    assert compare(*leaking, untouched, tier="token-exact").outcome == "broken"
    result = compare(*leaking, untouched, tier="bitwise")  # not this change's fault, but said
    assert result.outcome == "equal" and "mixes packed examples" in result.sentence


def test_a_packed_baseline_needs_no_isolation_test_for_changes_beside_the_batches() -> None:
    packed = [evidence(packed=True) for _ in range(3)]
    assert compare(*packed, tier="bitwise").outcome == "equal"
    leak = evidence("changed", packed=True, record={"isolation": [isolation(after=0.2)]})
    tight = [evidence(packed=True, record={"isolation": [isolation()]}) for _ in range(2)]
    assert compare(*tight, leak, tier="numeric").outcome == "broken"


def test_training_on_padding_is_a_finding_about_the_baseline() -> None:
    real: list[int | None] = [80] * len(LOSSES)
    padded = [evidence(real_tokens=real) for _ in range(2)]
    fewer = [step.model_copy(update={"supervised_tokens": 80}) for step in parity_steps(shifted(-0.05))]
    result = compare(*padded, evidence("changed", steps=fewer, real_tokens=real), tier="token-exact")
    assert result.outcome == "baseline-incorrect" and "trains on padding" in result.sentence


def test_other_micro_batches_are_weighed_by_tokens() -> None:
    """Two micro-batches of 30 and 70 labels against one of 100: the mean over tokens is the loss."""
    split = [
        step.model_copy(
            update={"losses": [step.losses[0] + 0.7, step.losses[0] - 0.3], "loss_weights": [30, 70]}
        )
        for step in parity_steps(LOSSES)
    ]
    arms = [evidence(steps=split), evidence(steps=split)]
    assert compare(*arms, evidence("changed"), tier="token-exact").outcome == "equal"
    bare = [s.model_copy(update={"gradient_sketch": {}, "grad_norm": None}) for s in parity_steps(LOSSES)]
    split = [s.model_copy(update={"gradient_sketch": {}, "grad_norm": None}) for s in split]
    arms = [evidence(steps=split), evidence(steps=split)]
    assert compare(*arms, evidence("changed", steps=bare), tier="token-exact").outcome == "undecided"


def test_a_shift_between_examples_shows_although_the_mean_is_equal() -> None:
    def with_examples(arm: str, first: float, second: float) -> object:
        steps = parity_steps(LOSSES, example_losses={"aa": (first * 40, 40.0), "bb": (second * 60, 60.0)})
        return evidence(arm, steps=steps)

    arms = [with_examples("baseline", 5.0, 5.0), with_examples("baseline", 5.0, 5.0)]
    moved = with_examples("changed", 5.3, 4.8)  # the mean over 100 labels is 5.0 in both arms
    result = compare(*arms, moved, tier="token-exact")  # type: ignore[arg-type]
    assert result.outcome == "broken" and "2 of 2 examples" in result.sentence
    near = with_examples("changed", 5.00002, 5.0)
    assert compare(*arms, near, tier="token-exact").outcome == "equal"  # type: ignore[arg-type]


def test_weights_that_stop_moving_fail() -> None:
    stuck = evidence("changed", record={"final_weights_digest": "w0"})
    result = compare(evidence(), evidence(), stuck, tier="bitwise")
    assert result.outcome == "broken" and "no longer change" in result.sentence


def test_replicas_must_stay_replicas() -> None:
    both = [evidence(ranks=2), evidence(ranks=2)]
    apart = evidence("changed", ranks=2)
    ranks = [
        rank.model_copy(update={"final_weights_digest": f"w{i + 1}"}) for i, rank in enumerate(apart.ranks)
    ]
    result = compare(*both, apart.model_copy(update={"ranks": ranks}), tier="bitwise")
    assert result.outcome == "broken" and "drifted apart" in result.sentence


def test_replicas_of_the_baseline_that_drift_are_its_own_fault() -> None:
    def torn(arm: str, losses: list[float]) -> ParityEvidence:
        found = evidence(arm, losses, ranks=2)
        ends = [r.model_copy(update={"final_weights_digest": f"w{i + 1}"}) for i, r in enumerate(found.ranks)]
        return found.model_copy(update={"ranks": ends})

    other = [loss * 0.9 for loss in LOSSES]
    result = compare(
        torn("a", LOSSES), torn("a", LOSSES), evidence("changed", other, ranks=2), tier="numeric"
    )
    assert result.outcome == "baseline-incorrect" and "replicas drift apart" in result.sentence
    sharded = evidence(ranks=2)
    assert compare(sharded, sharded, evidence("changed", ranks=2), tier="bitwise").outcome == "equal"


def test_a_printed_loss_of_another_step_is_named() -> None:
    printed = {str(i): round(loss, 4) for i, loss in enumerate(LOSSES)}
    late = {str(i): round(LOSSES[max(0, i - 1)], 4) for i in range(len(LOSSES))}
    result = compare(
        evidence(logged=printed), evidence(logged=printed), evidence("changed", logged=late), tier="bitwise"
    )
    assert result.outcome == "broken" and "a step 1 away" in result.sentence
    rarer = {key: value for key, value in printed.items() if int(key) % 3 == 0}
    same = evidence("changed", logged=rarer)
    assert (
        compare(evidence(logged=printed), evidence(logged=printed), same, tier="bitwise").outcome == "equal"
    )


def test_gradients_without_a_backward_are_undecided() -> None:
    """A loop that asks for its gradients with autograd.grad: no loss was read."""
    steps = [step.model_copy(update={"losses": [], "loss_weights": []}) for step in parity_steps(LOSSES)]
    blind = evidence(steps=steps)
    for tier in ("numeric", "token-exact"):
        result = compare(blind, blind, blind, tier=tier)
        assert result.outcome == "undecided" and "no loss was seen in step 0" in result.sentence
    seeded = [blind.model_copy(update={"seed": seed}) for seed in range(3)]
    assert "no loss was seen" in compare_statistical(seeded, seeded).sentence


def test_a_printed_loss_that_is_no_longer_the_loss_is_named() -> None:
    """The training is the same; what the user will read is not."""
    printed = {str(i): round(loss, 4) for i, loss in enumerate(LOSSES)}
    first = evidence(logged=printed)
    halved = evidence("changed", logged={key: value / 2 for key, value in printed.items()})
    result = compare(first, first, halved, tier="numeric")
    assert result.outcome == "broken" and "no longer the loss of the step (0.5 times it)" in result.sentence
    other = {str(i): value + 1 for i, value in enumerate(printed.values())}  # another quantity in both arms
    result = compare(
        evidence(logged=other), evidence(logged=other), evidence("changed", logged=printed), tier="numeric"
    )
    assert result.outcome == "equal"


def seeds(arm: str, offsets: list[float], frac: float = 0.0) -> list[object]:
    return [
        evidence(
            arm,
            [loss * (1 + off + frac) for loss in LOSSES],
            seed=seed,
            record={"initial_weights_digest": f"w{seed}"},
        )
        for seed, off in enumerate(offsets)
    ]


def test_statistical_parity_within_the_spread_of_seeds() -> None:
    spread = [-0.01, 0.0, 0.012]
    base = seeds("baseline", spread)
    near = seeds("changed", [s + d for s, d in zip(spread, (1e-3, -1e-3, 5e-4), strict=True)])
    result = compare_statistical(base, near)  # type: ignore[arg-type]
    assert result.outcome == "equal" and "3 seeds" in result.sentence
    for frac in (-0.05, 0.05):
        result = compare_statistical(base, seeds("changed", spread, frac))  # type: ignore[arg-type]
        assert result.outcome == "broken"
    unclear = seeds("changed", [s + d for s, d in zip(spread, (0.03, -0.03, 0.0), strict=True)])
    assert compare_statistical(base, unclear).outcome == "undecided"  # type: ignore[arg-type]
    assert compare_statistical(base[:2], near[:2]).outcome == "undecided"  # type: ignore[arg-type]


def with_examples(arm: str, losses: dict[str, float], seed: int) -> ParityEvidence:
    """Steps whose means say nothing of each other; each example has its own loss, over 10 labels."""
    names, count = list(losses), len(LOSSES)
    kept = [{name: [10 * losses[name], 10.0] for name in names[place::count]} for place in range(count)]
    pairs = zip(parity_steps([loss * (1 + 0.001 * seed) for loss in LOSSES]), kept, strict=True)
    steps = [step.model_copy(update={"example_losses": mine}) for step, mine in pairs]
    record = {"initial_weights_digest": f"w{seed}", "steps": steps}
    return evidence(arm, seed=seed, record=record)


def test_arms_that_batch_otherwise_are_compared_over_the_examples_both_trained_on() -> None:
    """The means of steps differ by a tenth: other texts. The same examples have the same loss."""
    texts = {f"{n:02d}": 2.0 + 0.1 * (n % 7) for n in range(24)}
    base = [with_examples("baseline", {k: v + 0.01 * s for k, v in texts.items()}, s) for s in range(3)]
    fuller = {k: texts[k] for k in list(texts)[4:]} | {f"x{n}": 5.0 for n in range(12)}
    near = [
        with_examples("changed", {k: v + 0.01 * s + 1e-4 for k, v in fuller.items()}, s) for s in range(3)
    ]
    result = compare_statistical(base, near)
    assert result.outcome == "equal" and "12 examples of the later steps that both" in result.sentence, (
        result.sentence
    )
    worse = [with_examples("changed", {k: 1.1 * v for k, v in fuller.items()}, s) for s in range(3)]
    assert compare_statistical(base, worse).outcome == "broken"
    strangers = [with_examples("changed", {f"y{n}": 2.0 for n in range(24)}, s) for s in range(3)]
    assert "later steps" not in compare_statistical(base, strangers).sentence
    alike = [with_examples("changed", {k: v + 0.01 * s for k, v in texts.items()}, s) for s in range(3)]
    assert "later steps" not in compare_statistical(base, alike).sentence, "the means of steps say more"


def reduced(arm: str, factor: float, **changes: list[float]) -> ParityEvidence:
    """Two ranks whose reduced gradient is `factor` of what their own add up to, but for `changes`."""
    own = {"a.weight": [1.2, -1.6], "b.weight": [0.12, 0.16], "c.weight": [0.3, -0.4]}
    sketch = {n: [factor * x for x in changes.get(n[0], values)] for n, values in own.items()}
    sketch = {n: [math.hypot(*values), *values] for n, values in sketch.items()}
    norm = math.hypot(*(values[0] for values in sketch.values()))
    steps = parity_steps(LOSSES, gradient_sketch=sketch, grad_norm=norm)
    return evidence(arm, steps=steps, ranks=2, contributions={0: own, 1: own, 2: own})


def test_the_reduced_gradient_is_that_of_one_rank() -> None:
    mean = [reduced("baseline", 0.5)] * 2
    result = compare(*mean, reduced("changed", 0.5), tier="numeric")
    assert result.outcome == "equal" and "on one rank" in result.sentence
    total = [reduced("baseline", 1.0)] * 2
    assert "the sum over ranks" in compare(*total, reduced("changed", 1.0), tier="numeric").sentence
    one = compare(*mean, reduced("changed", 0.5, b=[0.2, 0.1]), tier="numeric")
    assert one.outcome == "broken" and any("the gradient of b.weight is" in r for r in one.reasons)
    every = compare(*mean, reduced("changed", 0.5, a=[1, 1], b=[1, 1]), tier="numeric")
    assert any("the gradient is" in r and "off the mean of the ranks" in r for r in every.reasons)
    sum_now = compare(*mean, reduced("changed", 1.0), tier="numeric")
    assert any("global norm is 2x" in r for r in sum_now.reasons)


def test_a_reduction_that_cannot_be_checked_is_said_and_refuses_nothing() -> None:
    mean = [reduced("baseline", 0.5)] * 2
    unseen = reduced("changed", 0.5).model_copy(update={"contributions": {0: {"a.weight": [1.2, -1.6]}}})
    result = compare(*mean, unseen, tier="numeric")
    assert result.outcome == "equal" and "not checked" in result.sentence
    odd = [reduced("baseline", 0.5, b=[0.2, 0.1], a=[1.0, -1.6])] * 2
    result = compare(*odd, odd[0], tier="numeric")
    assert result.outcome == "equal" and "off the mean of its ranks" in result.sentence


def test_who_passes_without_an_allowance_for_noise_passes_with_it() -> None:
    """So the unchanged job need not be started again to measure its noise."""
    draw = random.Random(1)

    def noisy(arm: str, noise: float, bias: float, precision: str) -> ParityEvidence:
        steps = []
        for plain in parity_steps(LOSSES):
            norm = 1 + bias + noise * draw.gauss(0, 3)
            sketch = {"a": [norm, 0.6 * norm + noise * draw.gauss(0, 1), -0.8 * norm], "b": [0.1, 0.06, 0.08]}
            loss = plain.losses[0] * (1 + bias + noise * draw.gauss(0, 1))
            update = {"losses": [loss], "grad_norm": norm, "gradient_sketch": sketch}
            steps.append(plain.model_copy(update=update))
        return evidence(arm, steps=steps, precision=precision)

    passed = 0
    for number in range(300):
        noise, precision = 10 ** draw.uniform(-8, -2), "half" if number % 2 else "fp32"
        first, again = (noisy("baseline", noise, 0.0, precision) for _ in range(2))
        changed = noisy("changed", noise, draw.choice([0.0, 10 ** draw.uniform(-8, -2)]), precision)
        if compare(first, first, changed, tier="numeric").outcome == "equal":
            passed += 1
            assert compare(first, again, changed, tier="numeric").outcome == "equal"
    assert 100 < passed < 280


def unread(*places: int) -> list[ParityStep]:
    none = {"examples_digest": None, "examples": None}
    return [
        step.model_copy(update=none) if place in places else step
        for place, step in enumerate(parity_steps(LOSSES))
    ]


@pytest.mark.parametrize(
    ("baseline", "changed", "outcome"),
    [
        ((0,), (0,), "pass"),  # a model found at its first backward: missed in every arm
        ((0,), (), "undecided"),
        ((0, 1), (0, 1), "undecided"),
        ((3,), (3,), "undecided"),
    ],
)
def test_only_the_first_step_may_go_unread(
    baseline: tuple[int, ...], changed: tuple[int, ...], outcome: str
) -> None:
    arms = [evidence(steps=unread(*baseline)), evidence(steps=unread(*baseline))]
    found = check_examples(*arms, evidence("changed", steps=unread(*changed)), "token-exact")
    assert found.outcome == outcome
    assert ("not read in the first 1" in found.detail) == (outcome == "pass")


def test_other_examples_behind_an_unread_step_are_seen() -> None:
    steps = unread(0)
    steps[2] = steps[2].model_copy(update={"examples_digest": "f" * 32})
    arms = [evidence(steps=unread(0)), evidence(steps=unread(0))]
    found = check_examples(*arms, evidence("changed", steps=steps), "token-exact")
    assert found.outcome == "fail" and "step 2" in found.detail
