"""From launches, parity evidence and live checks to the verdict; and again from the verdict alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from autotune.errors import Exit
from autotune.records.verdict import (
    ArmRecord,
    Block,
    LiveCheck,
    MemoryPeak,
    Outcome,
    ParityEvidence,
    ParityResult,
    Settings,
    Trial,
    Unit,
    Verdict,
)
from autotune.verify import parity, stats
from autotune.verify.figures import steadiness, step_ms, useful_tokens_per_s
from autotune.verify.measure import measure
from autotune.verify.memory import headroom_fault, longest_batch_fault, longest_batch_fits
from autotune.verify.statistical import compare_statistical

EXIT_CODES: dict[Outcome, Exit] = {
    "faster": Exit.DONE,
    "no-measurable-change": Exit.DONE,
    "slower": Exit.SLOWER_OR_BROKEN,
    "parity-broken": Exit.SLOWER_OR_BROKEN,
    "patch-not-live": Exit.SLOWER_OR_BROKEN,
    "candidate-crashed": Exit.SLOWER_OR_BROKEN,
    "undecided": Exit.UNDECIDED,
    "baseline-incorrect": Exit.UNDECIDED,
    "out-of-memory-risk": Exit.SLOWER_OR_BROKEN,
    "no-steady-state": Exit.UNDECIDED,
    "not-finished": Exit.UNDECIDED,
}


@dataclass
class Session:
    """What one comparison has gathered so far."""

    arms: list[ArmRecord]
    settings: Settings
    trials: list[Trial] = field(default_factory=list)
    evidence: list[ParityEvidence] = field(default_factory=list)
    live: list[LiveCheck] = field(default_factory=list)
    reference_unknown: str | None = None
    notes: list[str] = field(default_factory=list)
    machine: str = ""

    @property
    def names(self) -> list[str]:
        """Arms in order, the baseline first."""
        return [arm.name for arm in self.arms]


@dataclass(frozen=True, slots=True)
class Failure:
    """A launch that ended the comparison."""

    arm: str
    outcome: Outcome
    reason: str


_RESTLESS = 0.5  # blocks without a steady state, against those in which the arm had one
_FAILURES: dict[str, Outcome] = {
    "crashed": "candidate-crashed",
    "not-finished": "not-finished",
    "no-steady-state": "no-steady-state",
    "too-few-steps": "undecided",
}


def find_failure(trials: Sequence[Trial], *, under_way: bool = False) -> Failure | None:
    """The launch that failed and was not made good by a later attempt; None when all went well.

    Where most blocks settled, the comparison does without the others: they are left out whole. While it is
    `under_way`, one such block says nothing yet.
    """
    for trial in trials:
        if trial.purpose in ("reference", "longest") or trial.outcome == "finished":
            continue  # without a reference something stays unknown
        if any(_same_place(t, trial) and t.attempt > trial.attempt for t in trials):
            continue
        if trial.outcome == "no-steady-state" and trial.purpose == "timing":
            settled = sum(t.arm == trial.arm and t.outcome == "finished" for t in _timed(trials))
            restless = len({t.block for t in _timed(trials) if _is_restless(t, trials)})
            if restless <= _RESTLESS * settled or (under_way and restless == 1):
                continue
        return Failure(trial.arm, _FAILURES[trial.outcome], trial.reason)
    return None


def _timed(trials: Sequence[Trial]) -> list[Trial]:
    return [t for t in trials if t.purpose == "timing"]


def _is_restless(one: Trial, trials: Sequence[Trial]) -> bool:
    """A launch that did not settle, and was not made good."""
    return one.outcome == "no-steady-state" and not any(
        _same_place(t, one) and t.attempt > one.attempt for t in trials
    )


def _same_place(one: Trial, other: Trial) -> bool:
    return (one.arm, one.purpose, one.block, one.position) == (
        other.arm,
        other.purpose,
        other.block,
        other.position,
    )


def judge_parity(
    evidence: Sequence[ParityEvidence],
    settings: Settings,
    names: Sequence[str],
    reference_unknown: str | None = None,
) -> ParityResult:
    """Parity of the last arm against the first, by the tier asked for.

    A candidate equal to the baseline to the last bit needs no repeat of the baseline to be judged by.
    """
    if settings.tier is None:
        return parity.not_run(None, "training was not compared")
    exact = next((e for e in evidence if e.full_precision), None)
    first = [e for e in evidence if e.arm == names[0] and not e.full_precision]
    last = [e for e in evidence if e.arm == names[-1] and not e.full_precision]
    if settings.tier == "statistical":
        if not first or not last:
            return parity.not_run(settings.tier, "training was not compared: a launch is missing")
        return compare_statistical(first, last)
    if not first or not last:
        return parity.not_run(settings.tier, "training was not compared: a launch is missing")
    return parity.compare(
        first[0],
        first[1] if len(first) > 1 else first[0],  # once: no allowance for its own noise
        last[0],
        tier=settings.tier,
        reference=exact,
        reference_unknown=reference_unknown or "",
    )


def conclude(session: Session) -> Verdict:
    """The verdict on everything gathered. Pure."""
    names = session.names
    result = judge_parity(session.evidence, session.settings, names, session.reference_unknown)
    measured = measure(session.trials, names)
    failure = find_failure(session.trials)
    lead = next(c for c in measured.contrasts if (c.reference, c.candidate) == (names[0], names[-1]))
    asked = session.settings.tier is not None
    arms = [_with_figures(arm, session.trials, measured.blocks, lead.unit) for arm in session.arms]
    short = longest_batch_fault(session.trials) or (
        None if longest_batch_fits(session.trials) else headroom_fault(arms[0], arms[-1])
    )
    outcome = _outcome(failure, session.live, result, lead.outcome, asked=asked)
    if short and outcome == "faster":
        outcome = "out-of-memory-risk"
    tried = any(trial.purpose == "timing" for trial in session.trials)
    timed = session.settings.max_pairs > 0 and (tried or result.outcome == "equal" or not asked)
    settled = outcome != "no-steady-state"  # blocks before it may have been complete: no number is taken
    spread = stats.interval(measured.pairs(names[0], names[-1]))
    floor = spread.half_width if session.settings.self_check and spread and spread.pairs > 1 else None
    return Verdict(
        outcome=outcome,
        sentence=short or ""
        if outcome == "out-of-memory-risk"
        else _sentence(outcome, failure, session.live, result, lead.sentence, timed=timed),
        ratio=lead.ratio if settled else None,
        interval=lead.interval if settled else None,
        unit=lead.unit,
        unit_reason=lead.unit_reason,
        pairs=lead.pairs,
        parity=result,
        contrasts=measured.contrasts,
        arms=arms,
        trials=session.trials,
        blocks=measured.blocks,
        parity_evidence=session.evidence,
        reference_unknown=session.reference_unknown,
        live=session.live,
        settings=session.settings,
        failed_arm=failure.arm if failure else None,
        failure=failure.reason if failure else None,
        noise_floor_frac=floor,
        machine=session.machine,
        minutes_spent=round(sum(t.wall_s for t in session.trials if not t.reused) / 60, 3),
        notes=[*session.notes, *(n for n in measured.notes if n not in session.notes)],
    )


def recompute(verdict: Verdict) -> Verdict:
    """The verdict again, from its own launches and evidence; equal to it unless something was changed."""
    measured = measure(verdict.trials, [arm.name for arm in verdict.arms])
    own = set(measured.notes)
    session = Session(
        arms=verdict.arms,
        settings=verdict.settings,
        trials=[_judged_again(trial) for trial in verdict.trials],
        evidence=verdict.parity_evidence,
        reference_unknown=verdict.reference_unknown,
        live=verdict.live,
        notes=[note for note in verdict.notes if note not in own],
        machine=verdict.machine,
    )
    return conclude(session)


def _judged_again(trial: Trial) -> Trial:
    """Whether a timing launch is steady is decided from its steps, not from its record."""
    if trial.purpose != "timing" or trial.outcome not in ("finished", "no-steady-state", "too-few-steps"):
        return trial
    steady = steadiness(trial)
    outcome = "finished" if steady.start is not None else steady.kind
    return trial.model_copy(update={"outcome": outcome, "reason": steady.reason})


def _outcome(
    failure: Failure | None, live: Sequence[LiveCheck], result: ParityResult, speed: str, *, asked: bool
) -> Outcome:
    if failure is not None and failure.outcome == "candidate-crashed":
        return failure.outcome
    if any(check.faults for check in live):
        return "patch-not-live"
    if result.outcome == "broken":
        return "parity-broken"
    if failure is not None:
        return failure.outcome
    if result.outcome == "baseline-incorrect":
        return "baseline-incorrect"
    if speed == "faster":
        return "faster" if result.outcome == "equal" or not asked else "undecided"
    if speed == "slower":
        return "slower"
    return "no-measurable-change" if speed == "no-measurable-change" else "undecided"


def _sentence(
    outcome: Outcome,
    failure: Failure | None,
    live: Sequence[LiveCheck],
    result: ParityResult,
    speed: str,
    *,
    timed: bool,
) -> str:
    faults = [fault for check in live for fault in check.faults]
    if outcome == "patch-not-live":
        return f"the change is not in effect: {faults[0]}"
    if failure is not None and outcome == failure.outcome:
        words = {
            "candidate-crashed": "crashed",
            "not-finished": "did not finish",
            "no-steady-state": "has no steady state",
            "undecided": "gave too few steps",
        }
        return f"{failure.arm} {words[failure.outcome]}: {failure.reason}"
    if outcome in ("parity-broken", "baseline-incorrect"):
        return f"{result.sentence}; {speed}" if "pairs" in speed else result.sentence
    return f"{speed}; {result.sentence}" if timed else result.sentence


def _with_figures(
    arm: ArmRecord, trials: Sequence[Trial], blocks: Sequence[Block], unit: Unit | None
) -> ArmRecord:
    """Memory and typical speed over the arm's own timing launches.

    What the ratio is made of comes from the very figures of the pairs, so that the two agree.
    """
    own = [t for t in trials if t.arm == arm.name and t.purpose == "timing" and t.outcome == "finished"]
    figures: dict[str, float | None] = {
        "useful_tokens_per_s": _middle([useful_tokens_per_s(t) for t in own]),
        "step_ms": _middle([step_ms(t) for t in own]),
    }
    compared = {"useful tokens/s": "useful_tokens_per_s", "ms/step": "step_ms"}.get(unit or "")
    paired = [b.figures[arm.name].value for b in blocks if b.set_aside is None and arm.name in b.figures]
    if compared and paired:
        figures[compared] = _middle(paired)
    return arm.model_copy(update={"memory": _largest([t.memory for t in own]), **figures})


def _largest(peaks: Sequence[MemoryPeak]) -> MemoryPeak:
    def most(name: str) -> int | None:
        return max((value for peak in peaks if (value := getattr(peak, name)) is not None), default=None)

    return MemoryPeak(**{name: most(name) for name in MemoryPeak.model_fields})


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
