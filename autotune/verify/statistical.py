"""Parity of changes that alter arithmetic or batches on purpose: several seeds, both arms, paired by seed.

Compared is the mean loss of the examples that both arms trained on, where the losses of single examples are
known and the arms met enough of the same; otherwise that of the second half of each launch. The change passes
when the interval of the paired differences lies within the spread of the baseline's own seeds; it fails when
the interval excludes zero and the mean lies outside that spread, to either side. The number of seeds and
steps is always said: a short run certifies no convergence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from autotune.records.verdict import (
    ParityCheck,
    ParityEvidence,
    ParityOutcome,
    ParityResult,
    ParityStepResult,
)
from autotune.verify.evidence import common_steps, steps_of
from autotune.verify.example_losses import totals_per_example
from autotune.verify.isolation import check_isolation
from autotune.verify.premises import (
    check_losses_seen,
    check_ranks,
    check_seeds,
    check_step_count,
    check_weights,
)
from autotune.verify.stats import t_quantile
from autotune.verify.tolerance import FLOORS

LEAST_SEEDS = 3
CONFIDENCE = 0.95
LEAST_EXAMPLES = 8  # that both arms trained on
LEAST_SHARED_FRAC = 0.5  # of the examples in the second half of the baseline
LEAST_BAND = 2e-3  # of the loss; a baseline whose seeds agree better than this is not resolved further


def compare_statistical(
    baselines: Sequence[ParityEvidence], candidates: Sequence[ParityEvidence]
) -> ParityResult:
    """Judge the candidate's launches against the baseline's, paired by seed."""
    pairs = [(a, b) for a in baselines for b in candidates if a.seed == b.seed and a.seed is not None]
    checks: list[ParityCheck] = []
    if len(pairs) < LEAST_SEEDS:
        detail = f"{len(pairs)} seeds ran in both arms, {LEAST_SEEDS} needed"
        checks.append(ParityCheck(name="seeds", outcome="undecided", detail=detail))
        return _result(checks, [], None, None, 0)
    for pair in pairs:
        found = [check_ranks(list(pair)), check_step_count(list(pair)), check_seeds(list(pair))]
        found.append(check_weights(list(pair)))
        checks += [check for check in found if check.outcome != "pass"]
    unseen = [check for pair in pairs if (check := check_losses_seen(list(pair))).outcome != "pass"]
    if unseen:
        return _result([*checks, unseen[0]], [], None, None, len(pairs))
    checks.append(check_isolation(*pairs[0], "statistical"))
    tables = [(_means(a, common_steps(a, b)), _means(b, common_steps(a, b))) for a, b in pairs]
    if any(not math.isfinite(x) for first, _ in tables for x in first):
        checks.append(
            ParityCheck(
                name="finite baseline", outcome="undecided", detail="the baseline's loss is not a number"
            )
        )
        return _result(checks, [], None, None, len(pairs), refused=True)
    if any(not math.isfinite(x) for _, second in tables for x in second):
        detail = "the loss becomes not a number with the change"
        checks.append(ParityCheck(name="loss", outcome="fail", detail=detail))
        return _result(checks, [], None, None, len(pairs))
    if len({tuple(first) for first, _ in tables}) < len(tables):
        detail = "nothing depends on the job's seeds: launches with other seeds were the same launch"
        checks.append(ParityCheck(name="seeds", outcome="undecided", detail=detail))
    length = min(len(first) for first, _ in tables)
    if length == 0:
        return _result(checks, [], None, None, len(pairs))
    half = length // 2
    figures = [(fmean(first[half:length]), fmean(second[half:length])) for first, second in tables]
    basis = f"{length} steps"
    shared = [_shared_examples(a, b, half) for a, b in pairs]
    if all(found is not None for found in shared):
        figures = [(found.baseline, found.candidate) for found in shared if found is not None]
        counts = [found.examples for found in shared if found is not None]
        basis = f"{min(counts)} examples of the later steps that both trained on, {length} steps"
    level = fmean(a for a, _ in figures)
    differences = [(b - a) / abs(level) for a, b in figures]
    spread = stdev(a for a, _ in figures) / abs(level)
    band = max(spread, LEAST_BAND, FLOORS[pairs[0][0].precision].loss)
    mean = fmean(differences)
    reach = t_quantile(len(differences) - 1, CONFIDENCE) * stdev(differences) / math.sqrt(len(differences))
    checks.append(_verdict(mean, reach, band, f"{len(pairs)} seeds, {basis}"))
    steps = [
        ParityStepResult(
            index=place,
            baseline=fmean(first[place] for first, _ in tables),
            repeat=None,
            candidate=fmean(second[place] for _, second in tables),
            difference_frac=fmean((second[place] - first[place]) / abs(level) for first, second in tables),
            tolerance_frac=band,
            equal=True,
        )
        for place in range(length)
    ]
    return _result(checks, steps, mean, spread, len(pairs))


def _means(arm: ParityEvidence, indexes: Sequence[int]) -> list[float]:
    """The loss of each step: over supervised tokens where they are known."""
    found = []
    for index in indexes:
        steps = steps_of(arm, index)
        pairs = [(w, x) for s in steps for w, x in zip(s.loss_weights, s.losses, strict=False)]
        weight = sum(w for w, _ in pairs)
        whole = all(len(step.loss_weights) == len(step.losses) for step in steps) and weight > 0
        plain = fmean(loss for step in steps for loss in step.losses)
        found.append(sum(w * x for w, x in pairs) / weight if whole else plain)
    return found


class _Shared(NamedTuple):
    """Mean losses over the labels of the examples that both arms trained on."""

    baseline: float
    candidate: float
    examples: int


def _shared_examples(baseline: ParityEvidence, candidate: ParityEvidence, half: int) -> _Shared | None:
    """Of the examples in the second half of the baseline's steps those that the candidate trained on, too.

    None where the steps of both hold the same examples, so that their means say more; and where the
    candidate met too few of them.
    """
    indexes = common_steps(baseline, candidate)
    if all(_examples_of(baseline, index) == _examples_of(candidate, index) for index in indexes):
        return None
    first, second = totals_per_example(baseline, indexes[half:]), totals_per_example(candidate)
    both = sorted(first.keys() & second.keys())
    if len(both) < max(LEAST_EXAMPLES, LEAST_SHARED_FRAC * len(first)):
        return None
    labels = sum(first[key][1] for key in both)
    return _Shared(
        baseline=sum(first[key][0] for key in both) / labels,
        candidate=sum(second[key][0] for key in both) / sum(second[key][1] for key in both),
        examples=len(both),
    )


def _examples_of(arm: ParityEvidence, index: int) -> set[str]:
    return {key for step in steps_of(arm, index) for key in step.example_losses}


def _verdict(mean: float, reach: float, band: float, basis: str) -> ParityCheck:
    basis = (
        f"mean difference {mean:+.2%} (95 % interval {mean - reach:+.2%} to {mean + reach:+.2%}), "
        f"the baseline's own seeds spread by {band:.2%}; {basis}"
    )
    if abs(mean) + reach <= band:
        return ParityCheck(name="loss", outcome="pass", detail=basis)
    if abs(mean) > reach and abs(mean) > band:
        word = "lower" if mean < 0 else "higher"
        return ParityCheck(name="loss", outcome="fail", detail=f"the loss is {word}: {basis}")
    return ParityCheck(name="loss", outcome="undecided", detail=f"too few seeds or steps to tell: {basis}")


def _result(
    checks: list[ParityCheck],
    steps: list[ParityStepResult],
    mean: float | None,
    spread: float | None,
    seeds: int,
    *,
    refused: bool = False,
) -> ParityResult:
    failed = [check for check in checks if check.outcome == "fail"]
    unknown = [check for check in checks if check.outcome == "undecided"]
    outcome: ParityOutcome = "equal"
    if refused:
        outcome = "refused"
    elif failed:
        outcome = "broken"
    elif unknown:
        outcome = "undecided"
    reasons = [f"{check.name}: {check.detail}" for check in (failed or unknown)]
    words = {"broken": "training changed", "undecided": "parity undecided", "refused": "parity refused"}
    loss = next((check.detail for check in checks if check.name == "loss"), "")
    sentence = (
        f"{words[outcome]}: {reasons[0]}" if outcome != "equal" else f"loss statistically equal: {loss}"
    )
    return ParityResult(
        tier="statistical",
        used="statistical",
        outcome=outcome,
        sentence=sentence,
        reasons=reasons,
        checks=checks,
        steps=steps,
        largest_difference_frac=None if mean is None else abs(mean),
        noise_frac=spread,
    )
