"""The gradients of two parity launches against each other: which parameters get one, how large, which way.

The same weights and the same examples give the same gradient, whatever the loss looks like: a backward that
is wrong, a scale that changed or a parameter that no longer learns shows here in the first step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import fmean, median

from autotune.records.observation import ParityStep
from autotune.records.verdict import ParityCheck, ParityEvidence
from autotune.verify.evidence import KEPT_SKETCHES, common_steps, steps_of
from autotune.verify.tolerance import FLOORS, MOST_GRADIENT_NOISE, NOISE_FACTOR

_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")

Sketch = dict[str, list[float]]


def check_grad_norms(
    baseline: ParityEvidence, repeat: ParityEvidence, candidate: ParityEvidence
) -> ParityCheck:
    """The gradient norm of every step."""
    name = "gradient norm"
    floor = FLOORS[baseline.precision].grad_norm
    widest, most = 0.0, 0.0
    indexes = common_steps(baseline, repeat, candidate)
    for place, index in enumerate(indexes):
        first, again, other = (_norm(arm, index) for arm in (baseline, repeat, candidate))
        if first is None or again is None:
            return ParityCheck(name=name, outcome="not-applicable", detail="not recorded")
        if other is None:
            return ParityCheck(name=name, outcome="fail", detail=f"no longer computed in step {index}")
        if not math.isfinite(other):
            return ParityCheck(name=name, outcome="fail", detail=f"not a number in step {index}")
        scale = max(first, 1e-12)
        widest = max(widest, abs(again - first) / scale)
        difference = (other - first) / scale
        if abs(difference) > max(NOISE_FACTOR * widest, floor * (1 + place)):
            detail = f"{other:.5g} instead of {first:.5g} in step {index} ({other / scale:.4g}x)"
            return ParityCheck(name=name, outcome="fail", detail=detail)
        most = max(most, abs(difference))
    noise = f", the baseline against itself {widest:.2g}"
    return ParityCheck(name=name, outcome="pass", detail=f"largest difference {most:.2g}{noise}")


def _norm(arm: ParityEvidence, index: int) -> float | None:
    norms = [step.grad_norm for step in steps_of(arm, index)]
    known = [value for value in norms if value is not None]
    return fmean(known) if len(known) == len(norms) and known else None


def check_gradients(
    baseline: ParityEvidence, repeat: ParityEvidence, candidate: ParityEvidence
) -> ParityCheck:
    """Sketches of each parameter's gradient in the first steps, on every rank."""
    name = "gradients"
    compared = 0
    worst = 0.0
    for place, index in enumerate(common_steps(baseline, repeat, candidate)[:KEPT_SKETCHES]):
        ranks = zip(*(steps_of(arm, index) for arm in (baseline, repeat, candidate)), strict=False)
        for rank, steps in enumerate(ranks):
            first, again, other = (_sketch(step) for step in steps)
            if not first or not again:
                continue
            if fault := _missing(first, other):
                return ParityCheck(name=name, outcome="fail", detail=f"step {index}: {fault}")
            noise, fault, error = _errors(first, again, other, place, baseline)
            if noise > MOST_GRADIENT_NOISE:
                detail = f"the baseline's gradients differ by {noise:.0%} from themselves at the same seed"
                return ParityCheck(name=name, outcome="undecided", detail=detail)
            if fault:
                spot = f"step {index}" + (f", rank {rank}" if len(baseline.ranks) > 1 else "")
                return ParityCheck(name=name, outcome="fail", detail=f"{spot}: {fault}")
            worst = max(worst, error)
            compared += 1
    if not compared:
        return ParityCheck(name=name, outcome="not-applicable", detail="not recorded")
    return ParityCheck(name=name, outcome="pass", detail=f"largest difference {worst:.2g} of the gradient")


def _sketch(step: ParityStep) -> Sketch:
    return {_WRAPPERS.sub("", name): values for name, values in step.gradient_sketch.items() if values}


def _missing(first: Sketch, other: Sketch) -> str:
    """Parameters that get a gradient in one arm only."""

    def learns(sketch: Sketch) -> set[str]:
        return {name for name, values in sketch.items() if any(value != 0 for value in values)}

    lost, new = sorted(learns(first) - learns(other)), sorted(learns(other) - learns(first))
    if lost:
        return f"{len(lost)} parameters no longer get a gradient, e.g. {lost[0]}"
    if new:
        return f"{len(new)} parameters now get a gradient, e.g. {new[0]}"
    return ""


def _errors(
    first: Sketch, again: Sketch, other: Sketch, place: int, baseline: ParityEvidence
) -> tuple[float, str, float]:
    """Noise, what is wrong (empty when nothing), and the error, all relative to the gradient."""
    floor = FLOORS[baseline.precision].gradient * (1 + place)
    if not all(math.isfinite(value) for values in other.values() for value in values):
        return 0.0, "a gradient is not a number", math.inf
    names = sorted(name for name in first if name in other and name in again)
    total = math.sqrt(sum(_length(first[name]) ** 2 for name in names))
    if total == 0:
        return 0.0, "", 0.0
    noise = math.sqrt(sum(_apart(first[n], again[n]) ** 2 for n in names)) / total
    error = math.sqrt(sum(_apart(first[n], other[n]) ** 2 for n in names)) / total
    if error > max(NOISE_FACTOR * noise, floor):
        scale = math.sqrt(sum(_length(other[name]) ** 2 for name in names)) / total
        how = f"{scale:.4g}x as large" if abs(scale - 1) > error / 2 else "in another direction"
        return noise, f"the gradient is {how} (difference {error:.2g})", error
    precision = FLOORS[baseline.precision]
    smallest = precision.negligible * median(_length(first[name]) for name in names)
    for name in names:
        # Few projections may all be small by chance; the norm never is.
        size = max(_length(first[name]), abs(first[name][0]), smallest)
        own = _apart(first[name], again[name]) / size
        off = _apart(first[name], other[name]) / size
        if off > max(NOISE_FACTOR * own, NOISE_FACTOR * noise, precision.parameter_room * floor):
            return noise, f"the gradient of {name} differs by {off:.2g} of its size", error
    return noise, "", error


def _length(sketch: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in _directions(sketch)))


def _apart(first: Sequence[float], other: Sequence[float]) -> float:
    left, right = _directions(first), _directions(other)
    if len(left) != len(right):
        return abs(_length(first) - _length(other))
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(left, right, strict=True)))


def _directions(sketch: Sequence[float]) -> Sequence[float]:
    """The projections; the norm alone where there are none."""
    return sketch[1:] if len(sketch) > 1 else sketch
