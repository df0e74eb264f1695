"""Half precision judged by evidence: both arms against the unchanged job computed in float32.

Two right computations in half precision round in other places, so how far they are from each other says
little. Each of them is about equally far from the exact gradient. A changed job may be `FACTOR` times as far
from it as the unchanged one, over all parameters, over the same parameter of all layers, and in each
parameter; a wrong backward is further away somewhere. The same for the loss of single examples.

Errors are estimated from sketches, so each limit holds the spread of the estimate: the quantile of the ratio
of two such estimates.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from autotune.records.verdict import ParityCheck, ParityEvidence
from autotune.verify.evidence import common_steps, sketches_of, steps_of
from autotune.verify.example_losses import means_per_example
from autotune.verify.sketches import Sketch, apart, directions, plain_names
from autotune.verify.tolerance import FLOORS, NOISE_FACTOR

FACTOR = 1.5  # times the unchanged job's own error
ROUNDING = (
    5e-3  # relative; both arms round to eight bits at least once, even where one of them got off lightly
)
PARAMETER_ROUNDING = 2e-2
LOSS_ROUNDING = 5e-4
CHANCE = 1e-5  # that a changed job exactly at the factor is refused, per question
REFERENCE_STEPS = 2  # the second shows parameters whose first gradient is zero (adapters)
_LAYER = re.compile(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)")


@dataclass(frozen=True, slots=True)
class ReferenceResult:
    """The checks, and for each judged step how far two right arms may be apart in it."""

    checks: list[ParityCheck]
    judged: dict[int, float]


def needs_reference(baseline: ParityEvidence) -> bool:
    """The unchanged job computes in half precision; one in float32 is itself the reference."""
    return baseline.precision == "half"


def reference_fault(baseline: ParityEvidence, reference: ParityEvidence) -> str:
    """Why the float32 launch cannot serve as a reference; empty when it can."""
    if len(reference.ranks) != len(baseline.ranks):
        return f"{len(reference.ranks)} of {len(baseline.ranks)} ranks reported"
    for rank, own in zip(reference.ranks, baseline.ranks, strict=True):
        if not rank.full_precision:
            return "the model was not found, so nothing shows that it ran in float32"
        if rank.half_arithmetic:
            return f"{rank.half_arithmetic[0]} computes in half precision all the same"
        values = own.initial_values_digest
        same = (
            values == rank.initial_values_digest
            if values is not None
            else own.initial_weights_digest == rank.initial_weights_digest
        )
        if not same:
            return "it starts from other weights"
        if any(not math.isfinite(loss) for step in rank.steps for loss in step.losses):
            return "its loss is not a number"
    steps = common_steps(baseline, reference)
    if not steps:
        return "it took no step"
    for index in steps[:1]:
        digests = [[s.examples_digest for s in steps_of(arm, index)] for arm in (baseline, reference)]
        if None not in digests[0] and digests[0] != digests[1]:
            return "it met other examples"
        if not all(sketches_of(reference, index)):
            return "no gradients were recorded"
    return ""


def compare_with_reference(
    baseline: ParityEvidence, repeat: ParityEvidence, candidate: ParityEvidence, reference: ParityEvidence
) -> ReferenceResult:
    """Errors of both arms against float32, step by step."""
    steps = common_steps(baseline, repeat, candidate, reference)[:REFERENCE_STEPS]
    judged: dict[int, float] = {}
    faults: list[str] = []
    told: list[str] = []
    for place, index in enumerate(steps):
        arms = (baseline, repeat, candidate, reference)
        for rank, sketches in enumerate(zip(*(sketches_of(arm, index) for arm in arms), strict=False)):
            first, again, other, exact = (plain_names(sketch) for sketch in sketches)
            errors = _Errors.of(first, again, other, exact)
            if errors is None:
                continue
            spot = f"step {index}" + (f", rank {rank}" if len(baseline.ranks) > 1 else "")
            own, changed = errors.whole()
            judged[index] = max(judged.get(index, 0.0), FACTOR * (own + changed))
            if fault := errors.fault(place):
                faults.append(f"{spot}: {fault}")
            elif not told:
                told.append(f"{changed:.2g} from float32, the unchanged job {own:.2g}")
    checks = []
    if faults:
        checks.append(ParityCheck(name="gradients against float32", outcome="fail", detail=faults[0]))
    elif told:
        checks.append(ParityCheck(name="gradients against float32", outcome="pass", detail=told[0]))
    checks += _losses(baseline, repeat, candidate, reference, steps)
    return ReferenceResult(checks, judged)


@dataclass(frozen=True, slots=True)
class _Errors:
    """Relative errors of each parameter's gradient in one step: unchanged, changed, and the own noise."""

    weight: Mapping[str, float]  # what relative errors are relative to
    own: Mapping[str, float]
    changed: Mapping[str, float]
    noise: Mapping[str, float]
    freedom: Mapping[str, int]  # sums behind each estimate

    @classmethod
    def of(cls, first: Sketch, again: Sketch, other: Sketch, exact: Sketch) -> _Errors | None:
        """None when nothing was recorded in one of them."""
        names = sorted(first.keys() & again.keys() & other.keys() & exact.keys())
        norms = {name: abs(exact[name][0]) for name in names}
        if not names or not any(norms.values()):
            return None
        least = FLOORS["half"].negligible * median(value for value in norms.values() if value > 0)
        weight = {name: max(norms[name], least) for name in names}
        return cls(
            weight=weight,
            own={
                n: math.sqrt((apart(first[n], exact[n]) ** 2 + apart(again[n], exact[n]) ** 2) / 2)
                / weight[n]
                for n in names
            },
            changed={n: apart(other[n], exact[n]) / weight[n] for n in names},
            noise={n: apart(first[n], again[n]) / weight[n] for n in names},
            freedom={n: len(directions(exact[n])) for n in names},
        )

    def whole(self) -> tuple[float, float]:
        """Of all parameters together, unchanged and changed, relative to the whole gradient."""
        names = list(self.weight)
        total = math.sqrt(sum(self.weight[n] ** 2 for n in names))
        return tuple(_joint(kind, self.weight, names) / total for kind in (self.own, self.changed))  # type: ignore[return-value]

    def fault(self, place: int) -> str:
        """What is further from float32 than it may be; empty when nothing is."""
        later = 1 + place
        names = list(self.weight)
        if fault := self._set(names, "the gradient", ROUNDING * later):
            return fault
        # A kernel may round where the unchanged job happened not to; it may not be worse than what is usual.
        usual = median(self.own.values())
        groups: dict[str, list[str]] = defaultdict(list)
        for name in names:
            groups[_LAYER.sub("*", name)].append(name)
        for title, members in groups.items():
            if fault := self._set(members, f"the gradient of {title}", PARAMETER_ROUNDING * later, usual):
                return fault
            if fault := self._single(members, PARAMETER_ROUNDING * later, usual):
                return fault
        return ""

    def _set(self, names: Sequence[str], title: str, rounding: float, usual: float = 0.0) -> str:
        """Several parameters as one gradient."""
        total = math.sqrt(sum(self.weight[n] ** 2 for n in names))
        own, changed, noise = (
            _joint(kind, self.weight, names) / total for kind in (self.own, self.changed, self.noise)
        )
        ratio = _ratio_quantile(self._freedom(self.changed, names), self._freedom(self.own, names))
        if changed <= FACTOR * ratio * max(own, usual) + NOISE_FACTOR * noise + rounding:
            return ""
        return f"{title} is {changed:.2g} of its size from float32, the unchanged job {own:.2g}"

    def _single(self, members: Sequence[str], rounding: float, usual: float) -> str:
        """Each parameter against its kind in all layers: one alone is seen through few sums."""
        kind = max(usual, math.sqrt(fmean(self.own[n] ** 2 for n in members)))
        joint = sum(self.freedom[n] for n in members)
        for name in members:
            few = self.freedom[name]
            most = max(_ratio_quantile(few, joint) * kind, _ratio_quantile(few, 10_000) * self.own[name])
            if self.changed[name] > FACTOR * most + NOISE_FACTOR * self.noise[name] + rounding:
                return (
                    f"the gradient of {name} is {self.changed[name]:.2g} of its size from float32, "
                    f"the unchanged job {self.own[name]:.2g}"
                )
        return ""

    def _freedom(self, errors: Mapping[str, float], names: Sequence[str]) -> float:
        """Sums that carry the joint estimate: one large parameter among many small counts alone."""
        squares = [(errors[n] * self.weight[n]) ** 2 for n in names]
        spread = sum(s * s / self.freedom[n] for s, n in zip(squares, names, strict=True))
        return sum(squares) ** 2 / spread if spread > 0 else float(sum(self.freedom[n] for n in names))


def _joint(errors: Mapping[str, float], weight: Mapping[str, float], names: Sequence[str]) -> float:
    return math.sqrt(sum((errors[n] * weight[n]) ** 2 for n in names))


def _ratio_quantile(above: float, below: float) -> float:
    """What the ratio of two estimates of the same error stays under, but for `CHANCE`."""
    from scipy.special import fdtri

    return math.sqrt(float(fdtri(max(1.0, above), max(1.0, below), 1 - CHANCE)))


def _losses(
    baseline: ParityEvidence,
    repeat: ParityEvidence,
    candidate: ParityEvidence,
    reference: ParityEvidence,
    steps: Sequence[int],
) -> list[ParityCheck]:
    """Losses of single examples: rounding moves each a little, a wrong forward moves some much."""
    name = "loss against float32"
    arms = (baseline, repeat, candidate, reference)
    told = ""
    for place, index in enumerate(steps):
        first, again, other, exact = (means_per_example(arm, index) for arm in arms)
        known = [k for k in exact if k in first and k in again and k in other]
        if not known:
            continue

        def off(values: Mapping[str, float], base: Mapping[str, float] = exact) -> float:
            shares = [(values[k] - base[k]) / max(abs(exact[k]), 1e-6) for k in known]  # noqa: B023
            return math.sqrt(fmean(share * share for share in shares))

        own, changed, noise = max(off(first), off(again)), off(other), off(first, again)
        limit = FACTOR * _ratio_quantile(len(known), len(known)) * own + NOISE_FACTOR * noise
        text = (
            f"{changed:.2g} of the loss from float32 over {len(known)} examples, the unchanged job {own:.2g}"
        )
        if not changed <= limit + LOSS_ROUNDING * (1 + place):
            return [ParityCheck(name=name, outcome="fail", detail=f"step {index}: {text}")]
        told = told or text
    return [ParityCheck(name=name, outcome="pass", detail=told)] if told else []
