"""From verdicts to rungs: what each kept change brought, and what the job will take now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.records.ladder import Rung

if TYPE_CHECKING:
    from autotune.records.findings import Diagnosis
    from autotune.records.plan import PlanGroup
    from autotune.records.verdict import Contrast, Verdict

_GIB = 1024.0**3


def first_rung(diagnosis: Diagnosis) -> Rung:
    """The job as it was."""

    def number(name: str) -> float | None:
        fact = diagnosis.facts.get(name)
        value = fact.value if fact is not None else None
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    return Rung(
        name="as it was",
        ratio_to_first=1.0,
        useful_tokens_per_s=number("run.useful_tokens_per_s"),
        step_ms=number("run.step_ms"),
        projected_hours=number("run.projected_hours"),
        batches_per_epoch=number("run.batches_per_epoch"),
        optimizer_steps_per_epoch=number("run.optimizer_steps_per_epoch"),
        peak_memory_gib=number("memory.peak_reserved_gib"),
        gpu_busy_frac=number("launch.gpu_busy_frac"),
        mfu_frac=number("run.mfu_frac"),
    )


def counted_again(last: Rung, diagnosis: Diagnosis) -> Rung:
    """The last rung with what a look at its job shows; a number that is not known again stays unknown."""
    seen = first_rung(diagnosis)
    update = {
        "batches_per_epoch": seen.batches_per_epoch or last.batches_per_epoch,
        "optimizer_steps_per_epoch": seen.optimizer_steps_per_epoch or last.optimizer_steps_per_epoch,
        "gpu_busy_frac": seen.gpu_busy_frac,
        "mfu_frac": seen.mfu_frac,
    }
    return last.model_copy(update=update)


def timed_beside(first: Rung, verdict: Verdict) -> Rung:
    """The job as it was, with the speed of its pairs: the watched start is another measurement."""
    arm = next((a for a in verdict.arms if a.name == "as it is"), None)
    if arm is None or first.name != "as it was":
        return first
    known = {"useful_tokens_per_s": arm.useful_tokens_per_s, "step_ms": arm.step_ms}
    return first.model_copy(update={name: value for name, value in known.items() if value is not None})


def kept_rungs(
    groups: Sequence[PlanGroup], verdict: Verdict, verdict_path: Path, run: Path, before: Rung
) -> list[Rung]:
    """One rung for each kept group of a trial whose arms are cumulative, in order."""
    rungs: list[Rung] = []
    base = before
    for group in groups:
        previous = rungs[-1] if rungs else before
        step = _contrast(verdict, groups, group)
        arm = next((a for a in verdict.arms if a.name == group.id), None)
        ratio = step.ratio if step is not None else verdict.ratio
        whole = next(
            (c for c in verdict.contrasts if c.reference == "as it is" and c.candidate == group.id), None
        )
        overall = whole.ratio if whole is not None else ratio
        to_first = overall * base.ratio_to_first if overall and base.ratio_to_first else None
        hours = base.projected_hours / overall if base.projected_hours and overall else None
        first_trial = base.name == "as it was"
        # Changes of these tiers leave every step's examples as they are, and parity has looked.
        same_batches = group.parity in (None, "bitwise", "numeric")
        reserved = arm.memory.reserved_bytes if arm is not None else None
        rungs.append(
            Rung(
                name=" + ".join(member.title for member in group.members) or group.id,
                groups=[group.id],
                rules=list(group.rules),
                ratio_to_previous=ratio,
                interval_to_previous=step.interval if step is not None else verdict.interval,
                ratio_to_first=to_first,
                interval_to_first=whole.interval if whole is not None and first_trial else None,
                pairs=step.pairs if step is not None else verdict.pairs,
                useful_tokens_per_s=arm.useful_tokens_per_s if arm is not None else None,
                step_ms=arm.step_ms if arm is not None else None,
                projected_hours=hours,
                batches_per_epoch=previous.batches_per_epoch if same_batches else None,
                optimizer_steps_per_epoch=previous.optimizer_steps_per_epoch if same_batches else None,
                peak_memory_gib=reserved / _GIB if reserved else None,
                parity=verdict.parity.sentence,
                verdict=str(verdict_path.relative_to(run)),
                predicted_upper=group.ratio_upper,
            )
        )
    return rungs


def measured_as_a_whole(last: Rung, verdict: Verdict) -> Rung:
    """The last rung with what all kept changes bring together; as its steps say where that is unknown."""
    if verdict.ratio is None or verdict.interval is None:
        return last
    return last.model_copy(
        update={
            "ratio_to_first": verdict.ratio,
            "interval_to_first": verdict.interval,
            "parity": verdict.parity.sentence,
        }
    )


def refutes(verdict: Verdict) -> bool:
    """All kept changes together are not what their single proofs said.

    A comparison without an answer (noise, minutes that ran out) takes nothing away from proofs that stand.
    """
    return verdict.outcome not in ("faster", "undecided", "not-finished", "no-steady-state")


def cumulative_arms(groups: Sequence[PlanGroup]) -> list[list[PlanGroup]]:
    """[[a], [a, b], ...]: what each rung of a joint trial holds."""
    return [list(groups[: count + 1]) for count in range(len(groups))]


def _contrast(verdict: Verdict, groups: Sequence[PlanGroup], group: PlanGroup) -> Contrast | None:
    index = list(groups).index(group)
    before = "as it is" if index == 0 else groups[index - 1].id
    return next((c for c in verdict.contrasts if c.reference == before and c.candidate == group.id), None)
