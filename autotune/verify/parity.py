"""Whether training is unchanged: the baseline, the baseline again, and the changed job, at one seed.

Tiers: `bitwise` (every loss equal to the last bit), `numeric` (loss and gradients within what the baseline
differs from itself, or the floor of its precision), `token-exact` (numeric, and the same examples and labels
in every optimizer step, and packed examples that do not see each other). The fourth, `statistical`, is in
`statistical.py`. A lower loss fails like a higher one. A baseline that is itself wrong is said to be so.
"""

from __future__ import annotations

from autotune.records.terms import Tier
from autotune.records.verdict import (
    ParityCheck,
    ParityEvidence,
    ParityOutcome,
    ParityResult,
    ReferenceState,
)
from autotune.verify.evidence import same_training
from autotune.verify.example_losses import check_example_losses
from autotune.verify.gradients import check_grad_norms, check_gradients
from autotune.verify.isolation import check_isolation, isolation_of
from autotune.verify.logged import check_logged
from autotune.verify.losses import LossComparison, compare_losses
from autotune.verify.modules import NAME as MODULES
from autotune.verify.modules import check_modules
from autotune.verify.premises import (
    check_baseline_finite,
    check_dropout,
    check_examples,
    check_losses_seen,
    check_ranks,
    check_seeds,
    check_step_count,
    check_supervised,
    check_weights,
    trains_on_padding,
)
from autotune.verify.reduction import NAME as REDUCTION
from autotune.verify.reduction import check_reduction
from autotune.verify.reference import (
    ReferenceResult,
    compare_with_reference,
    needs_reference,
    reference_fault,
)
from autotune.verify.weights import check_learning, check_replicas, drifted


def not_run(tier: Tier | None, reason: str) -> ParityResult:
    """The result where no parity launch was made."""
    used: Tier = tier or "numeric"
    return ParityResult(tier=used, used=used, outcome="not-run", sentence=reason, reasons=[reason])


def compare(
    baseline: ParityEvidence,
    repeat: ParityEvidence,
    candidate: ParityEvidence,
    *,
    tier: Tier,
    reference: ParityEvidence | None = None,
    reference_unknown: str = "",
) -> ParityResult:
    """Judge the candidate by one of the first three tiers.

    `repeat`: the baseline again, or `baseline` itself where the candidate is to pass without its noise.
    `reference`: the baseline in float32, where half precision is at work; `reference_unknown`: why there is
    none although there should be.
    """
    arms = [baseline, repeat, candidate]
    checks = [check_ranks(arms)]
    if checks[0].outcome == "undecided":
        return _result(tier, tier, checks, None)
    checks += [check_step_count(arms), check_baseline_finite(baseline, repeat)]
    if checks[2].outcome != "pass":
        return _result(tier, tier, checks, None, refused=True)
    if checks[1].outcome != "pass":
        return _result(tier, tier, checks, None)
    seen = check_losses_seen(arms)
    if seen.outcome != "pass":
        return _result(tier, tier, [*checks, seen], None)
    losses = compare_losses(baseline, repeat, candidate, tier)
    used: Tier = tier
    fallen = ""
    if tier == "bitwise" and not losses.repeats_exactly:
        used, fallen = (
            "numeric",
            "the baseline does not repeat itself to the last bit, so compared numerically",
        )
        losses = compare_losses(baseline, repeat, candidate, used)
    alone = repeat is baseline and not losses.identical
    exact, against = _reference(baseline, repeat, candidate, reference, reference_unknown)
    judged = against.judged if against is not None else {}
    checks += [
        check_seeds(arms),
        check_weights(arms),
        check_dropout(arms, identical=losses.identical),
        check_examples(baseline, repeat, candidate, used),
        check_supervised(baseline, candidate),
        *losses.checks,
        check_example_losses(baseline, repeat, candidate),
        check_grad_norms(baseline, repeat, candidate),
        check_gradients(baseline, repeat, candidate, judged),
        *(against.checks if against is not None else exact),
        check_learning(baseline, candidate),
        check_replicas(baseline, candidate),
        check_reduction(baseline, candidate),
        check_logged(baseline, candidate),
        check_isolation(baseline, candidate, used),
    ]
    checks += _gradients_needed(baseline, candidate, used, checks)
    single = check_modules(baseline, candidate, checks, alone=against is None)
    checks += [single] if single is not None else []
    flaw = _baseline_flaw(baseline, candidate)
    state: ReferenceState = "used" if against is not None else "unknown" if exact else "not-needed"
    return _result(tier, used, checks, losses, fallen=fallen, flaw=flaw, reference=state, alone=alone)


def _reference(
    baseline: ParityEvidence,
    repeat: ParityEvidence,
    candidate: ParityEvidence,
    reference: ParityEvidence | None,
    unknown: str,
) -> tuple[list[ParityCheck], ReferenceResult | None]:
    """The comparison with float32, or a check that says why it is unknown; neither where not needed."""
    if not needs_reference(baseline) or same_training(baseline, candidate):
        return [], None
    why = unknown or ("it was not run" if reference is None else reference_fault(baseline, reference))
    if reference is None or why:
        detail = f"reference unknown ({why}); the wide limits of half precision are used instead"
        return [ParityCheck(name="float32 reference", outcome="not-applicable", detail=detail)], None
    return [], compare_with_reference(baseline, repeat, candidate, reference)


def _gradients_needed(
    baseline: ParityEvidence, candidate: ParityEvidence, tier: Tier, checks: list[ParityCheck]
) -> list[ParityCheck]:
    """Where a step is split differently, only gradients show that the parts are weighed as before."""
    if tier != "token-exact":
        return []
    split = [
        [[len(step.losses) for step in rank.steps] for rank in arm.ranks] for arm in (baseline, candidate)
    ]
    seen = any(c.name in ("gradients", "gradient norm") and c.outcome != "not-applicable" for c in checks)
    if split[0] == split[1] or seen:
        return []
    detail = "micro-batches differ and no gradients were recorded, so their weights cannot be compared"
    return [ParityCheck(name="normalisation", outcome="undecided", detail=detail)]


def _baseline_flaw(baseline: ParityEvidence, candidate: ParityEvidence) -> str:
    """What is wrong with the baseline itself; empty when nothing was seen."""
    state = isolation_of(baseline)
    if state.state in ("leaks", "causality"):
        now = isolation_of(candidate)
        after = f"; with the change: {now.detail}" if now.state in ("isolated", "not-packed") else ""
        what = "mixes packed examples" if state.state == "leaks" else "lets tokens see later ones"
        return f"the baseline {what} ({state.detail}{after})"
    step = trains_on_padding(baseline)
    if step is not None:
        return f"the baseline trains on padding (step {step} has more labels than real tokens)"
    if drifted(baseline):
        return "the baseline's replicas drift apart (ranks that began with equal weights end with others)"
    return ""


def _result(
    asked: Tier,
    used: Tier,
    checks: list[ParityCheck],
    losses: LossComparison | None,
    *,
    refused: bool = False,
    fallen: str = "",
    flaw: str = "",
    reference: ReferenceState = "not-needed",
    alone: bool = False,
) -> ParityResult:
    failed = sorted((c for c in checks if c.outcome == "fail"), key=lambda c: _rank(c.name))
    unknown = [check for check in checks if check.outcome == "undecided"]
    isolation_failed = any(check.name == "isolation" for check in failed)
    outcome: ParityOutcome
    if refused:
        outcome = "refused"
    elif flaw and failed and not isolation_failed:
        outcome = "baseline-incorrect"
    elif failed and not _excused(failed, unknown):
        outcome = "broken"
    elif unknown or failed:
        outcome = "undecided"
    else:
        outcome = "equal"
    steps = losses.steps if losses else []
    largest = max((abs(step.difference_frac) for step in steps), default=None)
    noise = losses.noise_frac if losses and not alone else None
    identical = losses is not None and losses.identical
    reasons = [f"{check.name}: {check.detail}" for check in (unknown if outcome == "undecided" else failed)]
    reasons += [f"{check.name}: {check.detail}" for check in unknown if refused]
    reasons += [text for text in (fallen, flaw) if text]
    return ParityResult(
        tier=asked,
        used=used,
        outcome=outcome,
        sentence=_sentence(outcome, used, checks, len(steps), identical, largest, noise, reasons, flaw),
        reasons=reasons,
        checks=checks,
        steps=steps,
        largest_difference_frac=largest,
        noise_frac=noise,
        reference=reference,
    )


# The check that names the cause comes first: a loss that differs is what all of them lead to.
_CAUSES = (
    "isolation",
    "ranks",
    "examples",
    "supervised tokens",
    "learning",
    "replicas",
    REDUCTION,
    MODULES,
    "logged loss",
)


def _rank(name: str) -> int:
    return _CAUSES.index(name) if name in _CAUSES else len(_CAUSES)


_PREMISES = frozenset({"seed", "initial weights", "dropout", "examples", "loss", "gradients"})
_CERTAIN = frozenset({"isolation", "supervised tokens", "ranks", "learning", "replicas", REDUCTION})


def _excused(failed: list[ParityCheck], unknown: list[ParityCheck]) -> bool:
    """A difference says nothing while the launches could not start alike; some faults need no comparison."""
    if any(check.name in _CERTAIN or "not a number" in check.detail for check in failed):
        return False
    return any(check.name in _PREMISES for check in unknown)


def _sentence(
    outcome: ParityOutcome,
    used: Tier,
    checks: list[ParityCheck],
    steps: int,
    identical: bool,
    largest: float | None,
    noise: float | None,
    reasons: list[str],
    flaw: str,
) -> str:
    if outcome == "equal":
        if used == "bitwise" or identical:
            text = f"losses identical for {steps} steps"
        else:
            own = (
                "within rounding"
                if noise is None
                else f"run-to-run noise {noise:.2g}"
                if noise
                else "no run-to-run noise"
            )
            text = f"loss within {largest or 0.0:.2g} of itself for {steps} steps ({own})"
        if used == "token-exact":
            text += ", the same examples and labels in every step"
            isolated = next((c.detail for c in checks if c.name == "isolation" and c.outcome == "pass"), "")
            text += f"; {isolated}" if isolated else ""
        over = next((c for c in checks if c.name == REDUCTION and c.detail != "one rank"), None)
        text += f"; gradient over ranks {over.detail}" if over is not None else ""
        for check in checks:
            if check.name == "gradients against float32":
                text += f"; gradient {check.detail}"
            elif check.name == "float32 reference" or (check.name == MODULES and check.outcome == "pass"):
                text += f"; {check.detail}"
        return f"{text}; {flaw}" if flaw else text
    if outcome == "baseline-incorrect":
        return f"baseline incorrect: {flaw}, so its loss is no reference"
    first = reasons[0] if reasons else "no reason recorded"
    words = {"broken": "training changed", "undecided": "parity undecided", "refused": "parity refused"}
    return f"{words[outcome]}: {first}"
