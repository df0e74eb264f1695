"""Single modules on captured inputs: is a replaced one as near to float32 as the one it replaces?

It decides where the whole job could not be run in float32. Elsewhere the gradients of the whole job decide,
which also hold where a change moves a computation from one module to another; then this names the module.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from autotune.records.parity import ModuleRecord
from autotune.records.verdict import ParityCheck, ParityEvidence
from autotune.verify.reference import FACTOR, PARAMETER_ROUNDING, ROUNDING
from autotune.verify.tolerance import FLOORS

_NOISE = 0.1  # a gradient that the unchanged job gets no better than this is rounding
NAME = "modules against float32"


def check_modules(
    baseline: ParityEvidence, candidate: ParityEvidence, others: Sequence[ParityCheck], *, alone: bool
) -> ParityCheck | None:
    """The first module that is further from float32 than it may be; None where nothing was captured.

    `alone`: no float32 launch of the whole job stands beside it.
    """
    before, after = _records(baseline), _records(candidate)
    if not before:
        return None
    if not after:
        return ParityCheck(name=NAME, outcome="not-applicable", detail="the changed job's were not seen")
    own = {record.name: record for record in before if not record.unknown}
    pairs = [(own[r.name], r) for r in after if r.name in own and not r.unknown]
    if not pairs:
        why = next((r.unknown for r in [*after, *before] if r.unknown), "no module of that name")
        return ParityCheck(name=NAME, outcome="not-applicable", detail=f"not checked: {why}")
    half = baseline.precision == "half"
    floor = FLOORS[baseline.precision].gradient
    for first, other in pairs:
        if fault := _fault(first, other, *((ROUNDING, PARAMETER_ROUNDING) if half else (floor, floor))):
            decides = (half and alone) or any(check.outcome == "fail" for check in others)
            return ParityCheck(name=NAME, outcome="fail" if decides else "not-applicable", detail=fault)
    most = [max((_largest(record) for record in side), default=0.0) for side in zip(*pairs, strict=True)]
    kinds = "1 kind" if len(pairs) == 1 else f"{len(pairs)} kinds"
    detail = f"{kinds} of modules on captured inputs, {most[1]:.2g} from float32 (unchanged: {most[0]:.2g})"
    return ParityCheck(name=NAME, outcome="pass", detail=detail)


def _records(arm: ParityEvidence) -> list[ModuleRecord]:
    return [record for rank in arm.ranks for record in rank.modules]


def _largest(record: ModuleRecord) -> float:
    return max(record.output_error_frac or 0.0, record.input_error_frac or 0.0)


def _fault(first: ModuleRecord, other: ModuleRecord, rounding: float, for_parameter: float) -> str:
    """What of the module is off; empty when nothing is. Not a number is off."""
    where = f"{other.name} ({other.kind})"
    parts = [
        ("output", first.output_error_frac, other.output_error_frac),
        ("gradient of its input", first.input_error_frac, other.input_error_frac),
    ]
    for title, own, changed in parts:
        if own is not None and changed is not None and not changed <= FACTOR * own + rounding:
            return f"{where}: {title} {changed:.2g} from float32 on the same inputs, unchanged {own:.2g}"
    usual = median(first.parameter_error_frac.values()) if first.parameter_error_frac else 0.0
    for name, changed in other.parameter_error_frac.items():
        own = first.parameter_error_frac.get(name)
        if own is not None and own <= _NOISE and not changed <= FACTOR * max(own, usual) + for_parameter:
            title = f"gradient of {name}"
            return f"{where}: {title} {changed:.2g} from float32 on the same inputs, unchanged {own:.2g}"
    return ""
