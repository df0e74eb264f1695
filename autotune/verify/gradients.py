"""The gradients of two parity launches against each other: which parameters get one, how large, which way.

The same weights and the same examples give the same gradient, whatever the loss looks like: a backward that
is wrong, a scale that changed or a parameter that no longer learns shows here in the first step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from autotune.records.verdict import ParityCheck, ParityEvidence
from autotune.verify.evidence import KEPT_SKETCHES, common_steps, sketches_of, steps_of
from autotune.verify.sketches import Sketch, apart, difference, length, missing, plain_names
from autotune.verify.tolerance import (
    FLOORS,
    GRADIENT_NOISE_FACTOR,
    MOST_GRADIENT_NOISE,
    NOISE_FACTOR,
    Floor,
    noise_until,
)

_OPTIMIZER_ROOM = 3.0  # per step, on the noise alone


def check_grad_norms(
    baseline: ParityEvidence, repeat: ParityEvidence, candidate: ParityEvidence
) -> ParityCheck:
    """The gradient norm of every step."""
    name = "gradient norm"
    floor = FLOORS[baseline.precision].grad_norm
    indexes = common_steps(baseline, repeat, candidate)
    noises = norm_noises(baseline, repeat, indexes)
    if noises is None:
        return ParityCheck(name=name, outcome="not-applicable", detail="not recorded")
    most = 0.0
    for place, index in enumerate(indexes):
        first, other = _norm(baseline, index) or 0.0, _norm(candidate, index)
        if other is None:
            return ParityCheck(name=name, outcome="fail", detail=f"no longer computed in step {index}")
        if not math.isfinite(other):
            return ParityCheck(name=name, outcome="fail", detail=f"not a number in step {index}")
        scale = max(first, 1e-12)
        difference = (other - first) / scale
        if abs(difference) > max(NOISE_FACTOR * noise_until(noises, place), floor * (1 + place)):
            detail = f"{other:.5g} instead of {first:.5g} in step {index} ({other / scale:.4g}x)"
            return ParityCheck(name=name, outcome="fail", detail=detail)
        most = max(most, abs(difference))
    noise = f", the baseline against itself {max(noises, default=0.0):.2g}"
    return ParityCheck(name=name, outcome="pass", detail=f"largest difference {most:.2g}{noise}")


def norm_noises(
    baseline: ParityEvidence, repeat: ParityEvidence, indexes: Sequence[int]
) -> list[float] | None:
    """How far the baseline's gradient norm is from itself at each step; None where it was not recorded."""
    pairs = [(_norm(baseline, index), _norm(repeat, index)) for index in indexes]
    if any(a is None or b is None for a, b in pairs):
        return None
    return [abs((b or 0.0) - (a or 0.0)) / max(a or 0.0, 1e-12) for a, b in pairs]


def _norm(arm: ParityEvidence, index: int) -> float | None:
    norms = [step.grad_norm for step in steps_of(arm, index)]
    known = [value for value in norms if value is not None]
    return fmean(known) if len(known) == len(norms) and known else None


@dataclass(frozen=True, slots=True)
class _Triple:
    """The sketches of one rank in one step: baseline, repeat, candidate."""

    place: int
    index: int
    spot: str
    first: Sketch
    again: Sketch
    other: Sketch

    def names(self) -> list[str]:
        return sorted(name for name in self.first if name in self.other and name in self.again)


def check_gradients(
    baseline: ParityEvidence,
    repeat: ParityEvidence,
    candidate: ParityEvidence,
    judged: Mapping[int, float] | None = None,
) -> ParityCheck:
    """Sketches of each parameter's gradient in the first steps, on every rank.

    `judged`: steps whose gradients are compared with those of full precision, each with how far two right
    arms may be apart in it; here they are only looked at for what is missing, and the last one opens the
    steps after it.
    """
    name = "gradients"
    triples = _triples(baseline, repeat, candidate)
    if not triples:
        return ParityCheck(name=name, outcome="not-applicable", detail="not recorded")
    for triple in triples:
        if fault := missing(triple.first, triple.other):
            return ParityCheck(name=name, outcome="fail", detail=f"{triple.spot}: {fault}")
        if not all(math.isfinite(v) for values in triple.other.values() for v in values):
            return ParityCheck(name=name, outcome="fail", detail=f"{triple.spot}: a gradient is not a number")
    norms = norm_noises(baseline, repeat, common_steps(baseline, repeat, candidate)) or [0.0]
    noise = max([difference(t.first, t.again, t.names()) for t in triples] + [noise_until(norms, 0)])
    if noise > MOST_GRADIENT_NOISE:
        detail = f"the baseline's gradients differ by {noise:.0%} from themselves at the same seed"
        return ParityCheck(name=name, outcome="undecided", detail=detail)
    negligible = FLOORS[baseline.precision].negligible
    own = _own_noises(triples, negligible)
    # One repeat may agree with a parameter by chance; the noisier tenth of all tells what is usual.
    usual = sorted(own.values())[int(0.9 * len(own))] if own else 0.0
    own = {parameter: max(value, usual) for parameter, value in own.items()}
    worst = 0.0
    judged = judged or {}
    floors = FLOORS[baseline.precision]
    least = max([floors.gradient, *judged.values()])
    for triple in triples:
        worst = max(worst, difference(triple.first, triple.other, triple.names()))
        if triple.index in judged:
            continue
        if fault := _fault(triple, least * (1 + triple.place), noise, own, floors):
            return ParityCheck(name=name, outcome="fail", detail=f"{triple.spot}: {fault}")
    return ParityCheck(name=name, outcome="pass", detail=f"largest difference {worst:.2g} of the gradient")


def _triples(baseline: ParityEvidence, repeat: ParityEvidence, candidate: ParityEvidence) -> list[_Triple]:
    found = []
    for place, index in enumerate(common_steps(baseline, repeat, candidate)[:KEPT_SKETCHES]):
        ranks = zip(*(sketches_of(arm, index) for arm in (baseline, repeat, candidate)), strict=False)
        for rank, sketches in enumerate(ranks):
            first, again, other = (plain_names(sketch) for sketch in sketches)
            if first and again:
                spot = f"step {index}" + (f", rank {rank}" if len(baseline.ranks) > 1 else "")
                found.append(_Triple(place, index, spot, first, again, other))
    return found


def _size(triple: _Triple, name: str, negligible: float) -> float:
    """What a difference of one parameter's sketch is measured against."""
    smallest = negligible * median(length(triple.first[other]) for other in triple.names())
    # Few projections may all be small by chance; the norm never is.
    return max(length(triple.first[name]), abs(triple.first[name][0]), smallest, 1e-30)


def _own_noises(triples: Sequence[_Triple], negligible: float) -> dict[str, float]:
    """The largest noise of each parameter over the steps."""
    found: dict[str, float] = {}
    for triple in triples:
        for name in triple.names():
            noise = apart(triple.first[name], triple.again[name]) / _size(triple, name, negligible)
            found[name] = max(found.get(name, 0.0), noise)
    return found


def _fault(triple: _Triple, floor: float, noise: float, own: dict[str, float], floors: Floor) -> str:
    """What is wrong with the gradient of one step; empty when nothing is."""
    names = triple.names()
    error = difference(triple.first, triple.other, names)
    if error > max(GRADIENT_NOISE_FACTOR * noise, floor):
        before = math.sqrt(sum(length(triple.first[name]) ** 2 for name in names))
        scale = math.sqrt(sum(length(triple.other[name]) ** 2 for name in names)) / before
        how = f"{scale:.4g}x as large" if abs(scale - 1) > error / 2 else "in another direction"
        return f"the gradient is {how} (difference {error:.2g})"
    # After the first step the optimizer has made small gradients' noise large: Adam divides by their size.
    factor = GRADIENT_NOISE_FACTOR * (1 + _OPTIMIZER_ROOM * triple.place)
    for name in names:
        off = apart(triple.first[name], triple.other[name]) / _size(triple, name, floors.negligible)
        if off > max(factor * max(own[name], noise), floors.parameter_room * floor):
            return f"the gradient of {name} differs by {off:.2g} of its size"
    return ""
