"""Several ranks against one: the reduced gradient is what one rank would compute from all micro-batches.

Each rank's own gradient is sketched before it is reduced. Sketches add up, so their mean over the ranks is
that of the one-rank gradient on the same weights and the same micro-batches, and the global norm follows from
it. That is exact but for rounding, needs no launch of its own, and no rank has to hold the whole model.
Clipping and loss scaling are one factor for all parameters, so they do not disturb it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from autotune.records.verdict import ParityCheck, ParityEvidence
from autotune.verify.evidence import sketches_of, steps_of
from autotune.verify.sketches import directions, plain_names
from autotune.verify.tolerance import NOISE_FACTOR

NAME = "gradient over ranks"
# Relative rounding of a sum over ranks, by precision of the job: half precision may be reduced as such.
_ROUNDING = {"fp64": 1e-6, "fp32": 1e-4, "tf32": 1e-4, "half": 2e-2}
_PARAMETER_ROOM = 4.0
_SOUND = 10.0  # times the rounding: a baseline further off reduces in a way this check does not know
_NEGLIGIBLE = 1e-3


@dataclass(frozen=True, slots=True)
class _Reduced:
    """One step of one arm."""

    index: int
    factor: float  # of the reduced gradient to the sum over ranks
    off: float  # of all parameters together
    parameters: dict[str, float]
    norms: tuple[float, ...]  # as each rank has it
    one_rank_norm: float  # of the mean over ranks

    @property
    def worst(self) -> str:
        return max(self.parameters, key=lambda name: self.parameters[name])

    @property
    def shares(self) -> list[float]:
        """Each rank's norm against that of the mean over ranks."""
        return [norm / self.one_rank_norm for norm in self.norms]


def check_reduction(baseline: ParityEvidence, candidate: ParityEvidence) -> ParityCheck:
    """The reduced gradient and the global norm of the first steps, in both arms."""
    if len(baseline.ranks) < 2:
        return _told("not-applicable", "one rank")
    before, after = _reduced(baseline), _reduced(candidate)
    why = _unknown(baseline) or _unknown(candidate)
    if why or not before or not after:
        return _told("not-applicable", f"not checked: {why or 'a rank did not show its own gradient'}")
    rounding = _ROUNDING[baseline.precision]
    own = max(step.off for step in before)
    if own > _SOUND * rounding:
        detail = f"not checked: the unchanged job's gradient is {own:.2g} off the mean of its ranks"
        return _told("not-applicable", detail)
    room = max(NOISE_FACTOR * own, rounding)
    most = {
        name: max(NOISE_FACTOR * max(s.parameters.get(name, 0.0) for s in before), _PARAMETER_ROOM * room)
        for name in before[0].parameters
    }
    for step in after:
        wrong = [n for n, off in step.parameters.items() if not off <= most.get(n, _PARAMETER_ROOM * room)]
        if not wrong and step.off <= room:
            continue
        few = 0 < len(wrong) <= len(step.parameters) / 2
        what = f"the gradient of {step.worst}" if few else "the gradient"
        off = step.parameters[step.worst] if few else step.off
        return _told("fail", f"step {step.index}: {what} is {off:.2g} off the mean of the ranks")
    usual = {step.index: step for step in before}
    for step in after:
        first = usual.get(step.index)
        if first is None or len(first.norms) != len(step.norms):
            continue
        for then, now in zip(first.shares, step.shares, strict=True):
            if not abs(now / then - 1) <= 2 * room:
                return _told(
                    "fail",
                    f"step {step.index}: the global norm is {now:.4g}x that of the same micro-batches on one "
                    f"rank, {then:.4g}x in the unchanged job",
                )
    return _told("pass", _passed(after[0], len(candidate.ranks)))


def _passed(step: _Reduced, ranks: int) -> str:
    text = f"that of the same micro-batches on one rank, within {step.off:.1g}"
    if not step.norms:
        return text
    share, norm = step.shares[0], step.norms[0]
    if abs(share - 1) < 0.01:
        return f"{text}; global norm {norm:.4g}, on one rank {step.one_rank_norm:.4g}"
    times = "the sum over ranks" if abs(share / ranks - 1) < 0.01 else f"{share:.4g}x that of the mean"
    return f"{text}; global norm {norm:.4g} ({times}, as in the unchanged job)"


def _unknown(arm: ParityEvidence) -> str:
    return next((rank.reduction_unknown for rank in arm.ranks if rank.reduction_unknown), "")


def _reduced(arm: ParityEvidence) -> list[_Reduced]:
    found = []
    for index, raw in sorted(arm.contributions.items()):
        steps = steps_of(arm, index)
        norms = tuple(step.grad_norm for step in steps if step.grad_norm is not None)
        for sketch in sketches_of(arm, index):
            step = _step(index, plain_names(sketch), plain_names(raw), len(arm.ranks), norms)
            if step is not None:
                found.append(step)
    return found


def _step(
    index: int,
    reduced: dict[str, list[float]],
    summed: dict[str, list[float]],
    ranks: int,
    norms: tuple[float, ...],
) -> _Reduced | None:
    """None where a gradient was not seen before its reduction, or is not a number: other checks tell that."""
    names = [name for name in reduced if any(reduced[name])]
    if any(name not in summed for name in names):
        return None  # a compiled part, for instance, shows no gradient of its own
    pairs = {name: (list(directions(reduced[name])), summed[name]) for name in names}
    flat = [(r, s) for left, right in pairs.values() for r, s in zip(left, right, strict=False)]
    size = _square([s for _, s in flat])
    if not flat or not math.isfinite(size) or not all(math.isfinite(r) for r, _ in flat) or size <= 0:
        return None
    factors = [
        sum(r * s for r, s in zip(*p, strict=False)) / square
        for p in pairs.values()
        if (square := _square(p[1]))
    ]
    factor = median(factors)  # one parameter that is reduced in another way does not move it
    lengths = {name: math.hypot(*left) for name, (left, _) in pairs.items()}
    total = math.hypot(*lengths.values())
    if total <= 0 or factor <= 0:
        return None
    apart = {n: math.hypot(*(r - factor * s for r, s in zip(*p, strict=False))) for n, p in pairs.items()}
    least = _NEGLIGIBLE * median(lengths.values())
    whole = math.hypot(*(values[0] for values in reduced.values()))
    return _Reduced(
        index=index,
        factor=factor,
        off=math.hypot(*apart.values()) / total,
        parameters={n: apart[n] / max(lengths[n], factor * math.hypot(*pairs[n][1]), least) for n in apart},
        norms=norms,
        one_rank_norm=whole / (factor * ranks),
    )


def _square(values: Sequence[float]) -> float:
    return sum(value * value for value in values)


def _told(outcome: str, detail: str) -> ParityCheck:
    return ParityCheck.model_validate({"name": NAME, "outcome": outcome, "detail": detail})
