"""The losses of two parity launches against each other, step by step: equal, within tolerance, drifting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.records.terms import Tier
from autotune.records.verdict import ParityCheck, ParityEvidence, ParityStepResult
from autotune.verify.evidence import common_steps, steps_of
from autotune.verify.stats import sign_test
from autotune.verify.tolerance import FLOORS, MOST_LOSS_NOISE, NOISE_FACTOR, loss_tolerances

DRIFT_P = 0.05
DRIFT_STEPS = 6


@dataclass(frozen=True, slots=True)
class LossComparison:
    """Per-step results and the checks they answer."""

    steps: list[ParityStepResult]
    checks: list[ParityCheck]
    noise_frac: float
    repeats_exactly: bool  # baseline against itself, losses equal to the last bit
    identical: bool  # candidate too


def compare_losses(
    baseline: ParityEvidence, repeat: ParityEvidence, candidate: ParityEvidence, tier: Tier
) -> LossComparison:
    """Compare every step the three launches have in common."""
    indexes = common_steps(baseline, repeat, candidate)
    exact = all(_losses(baseline, i) == _losses(repeat, i) for i in indexes)
    identical = exact and all(_losses(baseline, i) == _losses(candidate, i) for i in indexes)
    if not all(math.isfinite(loss) for i in indexes for rank in _losses(candidate, i) for loss in rank):
        check = ParityCheck(
            name="loss", outcome="fail", detail="the loss becomes not a number with the change"
        )
        return LossComparison([], [check], 0.0, exact, False)
    views = _views(baseline, candidate, tier)
    best: LossComparison | None = None
    for view in views:
        found = _compare(view, baseline, repeat, candidate, tier, indexes, exact, identical)
        if best is None or _failures(found) < _failures(best):
            best = found
    assert best is not None
    return best


def _failures(found: LossComparison) -> int:
    return sum(not step.equal for step in found.steps)


def _views(baseline: ParityEvidence, candidate: ParityEvidence, tier: Tier) -> list[str]:
    """How the losses of a step are read.

    The same micro-batches in both arms: one by one. Other micro-batches: the mean over supervised tokens, or
    the sum backward was called on; which of them the job optimises shows in the gradients, not here.
    """
    if tier != "token-exact" and _same_layout(baseline, candidate):
        return ["each"]
    weighted = all(
        len(step.loss_weights) == len(step.losses) and sum(step.loss_weights) > 0
        for arm in (baseline, candidate)
        for rank in arm.ranks
        for step in rank.steps
    )
    if _same_layout(baseline, candidate):
        return ["mean"] if weighted else ["sum"]
    return ["mean", "sum"] if weighted else ["sum"]


def _same_layout(baseline: ParityEvidence, candidate: ParityEvidence) -> bool:
    return all(
        [len(rank) for rank in _losses(baseline, i)] == [len(rank) for rank in _losses(candidate, i)]
        for i in common_steps(baseline, candidate)
    )


def _losses(arm: ParityEvidence, index: int) -> list[list[float]]:
    return [step.losses for step in steps_of(arm, index)]


def _values(arm: ParityEvidence, index: int, view: str) -> list[float]:
    """The numbers of one step that are compared with those of the other arm."""
    steps = steps_of(arm, index)
    if view == "each":
        return [loss for step in steps for loss in step.losses]
    if view == "sum":
        return [fmean(sum(step.losses) for step in steps)]
    pairs = [(w, x) for step in steps for w, x in zip(step.loss_weights, step.losses, strict=True)]
    return [sum(w * x for w, x in pairs) / sum(w for w, _ in pairs)]


def _compare(
    view: str,
    baseline: ParityEvidence,
    repeat: ParityEvidence,
    candidate: ParityEvidence,
    tier: Tier,
    indexes: Sequence[int],
    exact: bool,
    identical: bool,
) -> LossComparison:
    tables = [[_values(arm, i, view) for i in indexes] for arm in (baseline, repeat, candidate)]
    means = [[fmean(values) for values in table] for table in tables]
    worst_noise = [_largest(a, b) for a, b in zip(tables[0], tables[1], strict=True)]
    again = [m * (1 + n) for m, n in zip(means[0], worst_noise, strict=True)]
    tolerances, noises = loss_tolerances(means[0], again, baseline.precision)
    norms = [[_norm(arm, i) for i in indexes] for arm in (baseline, candidate)]
    steps = []
    for place, index in enumerate(indexes):
        difference = _largest(tables[0][place], tables[2][place])
        allowed = 0.0 if tier == "bitwise" else tolerances[place]
        same = _losses(baseline, index) == _losses(candidate, index)
        steps.append(
            ParityStepResult(
                index=index,
                baseline=means[0][place],
                repeat=means[1][place],
                candidate=means[2][place],
                difference_frac=difference,
                tolerance_frac=allowed,
                baseline_grad_norm=norms[0][place],
                candidate_grad_norm=norms[1][place],
                equal=same if tier == "bitwise" else abs(difference) <= allowed,
            )
        )
    noise = max((abs(value) for value in noises), default=0.0)
    checks = [_loss_check(steps, noise, tier)]
    if tier != "bitwise":
        checks.append(_drift_check(steps, noises, baseline))
    return LossComparison(steps, checks, noise, exact, identical)


def _largest(before: Sequence[float], after: Sequence[float]) -> float:
    """The relative difference with the largest size, signed."""
    if len(before) != len(after):
        before, after = [fmean(before)], [fmean(after)]
    return max(
        ((b - a) / max(abs(a), 1e-12) for a, b in zip(before, after, strict=True)), key=abs, default=0.0
    )


def _norm(arm: ParityEvidence, index: int) -> float | None:
    norms = [step.grad_norm for step in steps_of(arm, index) if step.grad_norm is not None]
    return fmean(norms) if norms else None


def _loss_check(steps: Sequence[ParityStepResult], noise: float, tier: Tier) -> ParityCheck:
    if tier != "bitwise" and noise > MOST_LOSS_NOISE:
        return ParityCheck(
            name="loss",
            outcome="undecided",
            detail=f"the baseline's loss differs by {noise:.1%} from itself at the same seed",
        )
    wrong = [step for step in steps if not step.equal]
    if not wrong:
        most = max((abs(step.difference_frac) for step in steps), default=0.0)
        return ParityCheck(name="loss", outcome="pass", detail=f"largest difference {most:.2g} of the loss")
    first = wrong[0]
    word = "lower" if first.candidate < first.baseline else "higher"
    return ParityCheck(
        name="loss",
        outcome="fail",
        detail=f"{word} from step {first.index} on: {first.candidate:.7g} instead of {first.baseline:.7g} "
        f"({first.difference_frac:+.2g} of it, allowed {first.tolerance_frac:.2g})",
    )


def _drift_check(
    steps: Sequence[ParityStepResult], noises: Sequence[float], baseline: ParityEvidence
) -> ParityCheck:
    """A small difference that always has the same sign in the second half is a drift, not rounding."""
    half = len(steps) // 2
    second = [step.difference_frac for step in steps[half:] if step.difference_frac != 0]
    if len(steps) - half < DRIFT_STEPS:
        return ParityCheck(name="drift", outcome="not-applicable", detail="too few steps to see one")
    chance = sign_test(sum(value > 0 for value in second), len(second))
    mean = fmean(second) if second else 0.0
    floor = FLOORS[baseline.precision]
    visible = max(NOISE_FACTOR * fmean(noises[half:]), (floor.loss + floor.loss_growth * half) / 2)
    if chance < DRIFT_P and abs(mean) > visible:
        word = "lower" if mean < 0 else "higher"
        return ParityCheck(
            name="drift", outcome="fail", detail=f"the loss stays {word}, by {abs(mean):.2g} of it on average"
        )
    return ParityCheck(name="drift", outcome="pass", detail="no trend in the second half")
