"""The loss of each single example in the first steps: the same, however the examples are laid out in batches.

A step's mean hides a shift from one example to another; this does not. A packed row that leaks, a wrong
position or a mask that lost its padding moves some examples and leaves the mean alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.records.verdict import ParityCheck, ParityEvidence
from autotune.verify.evidence import common_steps, steps_of
from autotune.verify.tolerance import FLOORS, NOISE_FACTOR

_SAMPLES = 64
_ROOM = 5.0  # one short example averages less rounding away than a step


def check_example_losses(
    baseline: ParityEvidence, repeat: ParityEvidence, candidate: ParityEvidence
) -> ParityCheck:
    """Mean loss per label of every example both arms trained on, over all ranks."""
    name = "loss per example"
    floor = FLOORS[baseline.precision]
    worst, compared = 0.0, 0
    noise = _noise(baseline, repeat)
    for place, index in enumerate(common_steps(baseline, repeat, candidate)):
        first, again, other = (means_per_example(arm, index) for arm in (baseline, repeat, candidate))
        known = [key for key in first if key in again and key in other]
        if not known:
            continue
        allowed = max(NOISE_FACTOR * noise, _ROOM * (floor.loss + floor.loss_growth * place))
        off = {key: _apart(first[key], other[key]) for key in known}
        wrong = [key for key, value in off.items() if not value <= allowed]  # also NaN
        if wrong:
            key = max(wrong, key=lambda k: off[k])
            detail = (
                f"{len(wrong)} of {len(known)} examples of step {index} have another loss, "
                f"one {other[key]:.6g} instead of {first[key]:.6g}"
            )
            return ParityCheck(name=name, outcome="fail", detail=detail)
        worst = max(worst, *off.values())
        compared += len(known)
    if not compared:
        return ParityCheck(name=name, outcome="not-applicable", detail="not recorded")
    detail = f"{compared} examples, largest difference {worst:.2g} of the loss"
    return ParityCheck(name=name, outcome="pass", detail=detail)


def _noise(baseline: ParityEvidence, repeat: ParityEvidence) -> float:
    """The most any example, or any step's loss, of the baseline differs from itself."""
    found = [0.0]
    for index in common_steps(baseline, repeat):
        first, again = means_per_example(baseline, index), means_per_example(repeat, index)
        found += [_apart(first[key], again[key]) for key in first if key in again]
        for one, other in zip(steps_of(baseline, index), steps_of(repeat, index), strict=False):
            found += [_apart(a, b) for a, b in zip(one.losses, other.losses, strict=False)]
        if len(found) > _SAMPLES:
            break
    return max(found)


def means_per_example(arm: ParityEvidence, index: int) -> dict[str, float]:
    """Digest of an example -> its mean loss per label in this step."""
    totals: dict[str, tuple[float, float]] = {}
    for step in steps_of(arm, index):
        for key, (loss, labels) in step.example_losses.items():
            before = totals.get(key, (0.0, 0.0))
            totals[key] = before[0] + loss, before[1] + labels
    return {key: loss / labels for key, (loss, labels) in totals.items() if labels}


def totals_per_example(
    arm: ParityEvidence, indexes: Sequence[int] | None = None
) -> dict[str, tuple[float, float]]:
    """Digest of an example -> (sum of its losses, labels) when it was first trained on, over all ranks.

    `indexes`: of these steps only.
    """
    found: dict[str, tuple[float, float]] = {}
    for rank in arm.ranks:
        for step in rank.steps:
            if indexes is not None and step.index not in indexes:
                continue
            for key, (loss, labels) in step.example_losses.items():
                if labels and math.isfinite(loss):
                    found.setdefault(key, (loss, labels))
    return found


def _apart(first: float, other: float) -> float:
    if not math.isfinite(first):
        return 0.0  # an example the baseline itself cannot score
    return abs(other - first) / max(abs(first), 1e-6)
