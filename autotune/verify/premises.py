"""Whether two parity launches can be compared at all: ranks, seeds, weights, dropout, data."""

from __future__ import annotations

import math

from autotune.records.terms import Tier
from autotune.records.verdict import ParityCheck, ParityEvidence
from autotune.verify.evidence import common_steps, steps_of

LEAST_PARITY_STEPS = 5
_MOST_UNREAD = 1


def check_ranks(arms: list[ParityEvidence]) -> ParityCheck:
    """Every rank of every arm reported, the same number in each."""
    for arm in arms:
        if not arm.ranks:
            return _undecided("ranks", f"{arm.label}: no rank recorded losses")
        if len(arm.ranks) < arm.expected_ranks:
            return _undecided(
                "ranks", f"{arm.label}: {len(arm.ranks)} of {arm.expected_ranks} ranks reported"
            )
    counts = sorted({len(arm.ranks) for arm in arms})
    if len(counts) > 1:
        return _undecided("ranks", f"the arms ran on {counts[0]} and on {counts[-1]} ranks")
    for arm in arms:
        taken = [len(rank.steps) for rank in arm.ranks]
        if max(taken) - min(taken) > 1:
            return _fail("ranks", f"{arm.label}: ranks are out of step ({min(taken)} to {max(taken)} steps)")
    return _passed("ranks", f"{counts[0]} in every launch, all in step")


def check_seeds(arms: list[ParityEvidence]) -> ParityCheck:
    """Random numbers start from the same state."""
    for arm in arms:
        if arm.seed is None or not all(rank.seeded for rank in arm.ranks):
            return _undecided("seed", f"{arm.label}: the job's random numbers could not be seeded")
    seeds = {arm.seed for arm in arms}
    if len(seeds) > 1:
        return _undecided(
            "seed", f"the launches had different seeds {sorted(s for s in seeds if s is not None)}"
        )
    return _passed("seed", f"{arms[0].seed}, set before the job's own code in every launch")


def check_weights(arms: list[ParityEvidence]) -> ParityCheck:
    """Equal initial weights, rank by rank."""
    digests = [[rank.initial_weights_digest for rank in arm.ranks] for arm in arms]
    if any(digest is None for arm in digests for digest in arm):
        return _undecided("initial weights", "the weights before the first step could not be read")
    if len(digests) > 2 and digests[0] != digests[1]:
        return _undecided("initial weights", "the job starts from different weights at every launch")
    if digests[0] != digests[-1]:
        return _undecided("initial weights", "the change starts from different initial weights")
    return _passed("initial weights", "equal in every launch")


def check_dropout(arms: list[ParityEvidence], *, identical: bool) -> ParityCheck:
    """No dropout; losses equal to the last bit prove that it was drawn alike."""
    states = [rank.dropout_active for arm in arms for rank in arm.ranks]
    if any(states):
        if identical:
            return _passed("dropout", "active, and drawn alike: every loss is equal to the last bit")
        return _undecided("dropout", "dropout is active, so launches differ for that reason alone")
    if any(state is None for state in states):
        return _undecided("dropout", "whether dropout is active could not be read")
    return _passed("dropout", "not active")


def check_baseline_finite(baseline: ParityEvidence, repeat: ParityEvidence) -> ParityCheck:
    """The baseline's losses and gradients are numbers."""
    for arm in (baseline, repeat):
        for rank in arm.ranks:
            for step in rank.steps:
                if not all(math.isfinite(loss) for loss in step.losses):
                    return _undecided(
                        "finite baseline", f"the baseline's loss is not a number in step {step.index}"
                    )
                if step.grad_norm is not None and not math.isfinite(step.grad_norm):
                    return _undecided(
                        "finite baseline", f"the baseline's gradient is not a number in step {step.index}"
                    )
    return _passed("finite baseline", "all losses and gradients are numbers")


def check_step_count(arms: list[ParityEvidence]) -> ParityCheck:
    """Enough steps in common."""
    count = len(common_steps(*arms))
    if count < LEAST_PARITY_STEPS:
        return _undecided("steps", f"only {count} steps in common, {LEAST_PARITY_STEPS} needed")
    return _passed("steps", f"{count} in common")


def check_losses_seen(arms: list[ParityEvidence]) -> ParityCheck:
    """Every compared step went through `backward`, where the loss is read."""
    for arm in arms:
        for index in common_steps(*arms):
            if not all(step.losses for step in steps_of(arm, index)):
                detail = (
                    f"{arm.label}: no loss was seen in step {index}: its gradients come without backward()"
                )
                return _undecided("loss", detail)
    return _passed("loss seen", "in every step")


def check_examples(
    baseline: ParityEvidence, repeat: ParityEvidence, candidate: ParityEvidence, tier: Tier
) -> ParityCheck:
    """The same multiset of examples (context and labels) in every optimizer step."""
    name = "examples"
    steps = common_steps(baseline, repeat, candidate)
    digests = [[_examples(arm, index) for index in steps] for arm in (baseline, repeat, candidate)]
    unread = 0
    while unread < len(steps) and all(arm[unread] is None for arm in digests):
        unread += (
            1  # a model that is only found at its first backward: its first calls were missed in every arm
        )
    if unread > _MOST_UNREAD or len(steps) - unread < LEAST_PARITY_STEPS - _MOST_UNREAD:
        unread = 0
    first, again, other = (arm[unread:] for arm in digests)
    if any(digest is None for digest in [*first, *again, *other]):
        if tier == "token-exact":
            return _undecided(name, "the examples of a step could not be read from its batches")
        return ParityCheck(name=name, outcome="not-applicable", detail="not read from the batches")
    if first != again:
        return _undecided(name, "the job draws other examples at every launch")
    for place, index in enumerate(steps[unread:]):
        if first[place] != other[place]:
            return _fail(name, f"step {index} trains on other examples or other labels{_how(first, other)}")
    missed = f"; not read in the first {unread}" if unread else ""
    return _passed(name, f"the same in each of {len(first)} steps{missed}")


def _how(first: list[str | None], other: list[str | None]) -> str:
    """What became of the examples over all compared steps."""
    if sorted(str(d) for d in first) == sorted(str(d) for d in other):
        return ": the same batches in another order"
    shift = next((k for k in (1, 2, -1, -2) if _shifted(first, other, k)), None)
    return f": the batches are shifted by {abs(shift)} steps" if shift else ""


def _shifted(first: list[str | None], other: list[str | None], by: int) -> bool:
    left, right = (first[by:], other[:-by]) if by > 0 else (first[:by], other[-by:])
    return len(left) >= 3 and left == right


def _examples(arm: ParityEvidence, index: int) -> str | None:
    """Digest of the step's examples over all ranks; digests are sums, so they add up."""
    digests = [step.examples_digest for step in steps_of(arm, index)]
    if any(digest is None for digest in digests):
        return None
    try:
        total = sum(int(digest or "0", 16) for digest in digests) % 2**128
    except ValueError:
        return "+".join(sorted(str(digest) for digest in digests))
    return f"{total:032x}"


def check_supervised(baseline: ParityEvidence, candidate: ParityEvidence) -> ParityCheck:
    """The same number of labels that count in every step."""
    name = "supervised tokens"
    total = 0
    for index in common_steps(baseline, candidate):
        first = [step.supervised_tokens for step in steps_of(baseline, index)]
        other = [step.supervised_tokens for step in steps_of(candidate, index)]
        if any(value is None for value in [*first, *other]):
            return ParityCheck(name=name, outcome="not-applicable", detail="labels were not seen")
        before, after = sum(v or 0 for v in first), sum(v or 0 for v in other)
        if before != after:
            return _fail(name, f"step {index} trains on {after} instead of {before} labels")
        total += before
    return _passed(name, f"{total} in both arms")


def trains_on_padding(arm: ParityEvidence) -> int | None:
    """The first step with more labels that count than real tokens; None when there is none."""
    for place, index in enumerate(step.index for step in arm.ranks[0].steps):
        real = arm.real_tokens[place] if place < len(arm.real_tokens) else None
        if index not in common_steps(arm) or real is None:
            continue
        labels = [step.supervised_tokens for step in steps_of(arm, index)]
        if all(value is not None for value in labels) and sum(v or 0 for v in labels) > real:
            return index
    return None


def _passed(name: str, detail: str) -> ParityCheck:
    return ParityCheck(name=name, outcome="pass", detail=detail)


def _fail(name: str, detail: str) -> ParityCheck:
    return ParityCheck(name=name, outcome="fail", detail=detail)


def _undecided(name: str, detail: str) -> ParityCheck:
    return ParityCheck(name=name, outcome="undecided", detail=detail)
