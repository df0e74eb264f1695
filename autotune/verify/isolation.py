"""Whether the examples of a packed row see each other: one is replaced by noise, the others must not move.

Equal loss is no proof: a leaking packed run showed a loss of 12.820 against 12.821 for the right one.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.records.terms import Tier
from autotune.records.verdict import ParityCheck, ParityEvidence

REPEAT_FACTOR = 3.0  # the machine's own spread is one sample of a maximum
GRADIENT_LIMIT = 1e-6  # of the largest gradient; masked scores leave exact zeros
EXPERT_LIMIT = 1e-3  # experts see other batch shapes, which changes rounding


@dataclass(frozen=True, slots=True)
class Isolation:
    """`state`: isolated, leaks, causality (earlier tokens see later ones), unknown, or not-packed."""

    state: str
    detail: str


def isolation_of(arm: ParityEvidence) -> Isolation:
    """What the isolation test of one launch says."""
    found = [record for rank in arm.ranks for record in rank.isolation]
    errors = [rank.isolation_error for rank in arm.ranks if rank.isolation_error]
    for record in found:
        zero = REPEAT_FACTOR * record.repeat_change_frac
        limit = max(zero, EXPERT_LIMIT if arm.experts else 0.0)
        if record.before_change_frac > limit:
            size = record.before_change_frac
            return Isolation("causality", f"earlier tokens changed by {size:.2g} of the largest logit")
        if record.after_change_frac > limit:
            size = record.after_change_frac
            return Isolation("leaks", f"later examples changed by {size:.2g} of the largest logit")
        if (record.gradient_change_frac or 0.0) > max(limit, GRADIENT_LIMIT):
            share = f"{record.gradient_change_frac:.2g} of the largest"
            return Isolation("leaks", f"gradients of other examples reach its tokens, {share}")
    if errors:
        return Isolation("unknown", errors[0])
    if found:
        examples = max(record.examples for record in found)
        repeat = max(record.repeat_change_frac for record in found)
        how = "exactly equal" if repeat == 0 else f"equal within the machine's own spread of {repeat:.2g}"
        backward = all(record.gradient_change_frac is not None for record in found)
        grads = ", and no gradient crosses" if backward else ""
        return Isolation("isolated", f"one of {examples} examples replaced by noise, all others {how}{grads}")
    if arm.packed:
        return Isolation("unknown", "rows hold several examples, and the isolation test did not run")
    return Isolation(
        "not-packed", "no row holds several examples" if arm.packed is False else "no packed rows seen"
    )


def check_isolation(baseline: ParityEvidence, candidate: ParityEvidence, tier: Tier) -> ParityCheck:
    """The isolation test of the changed job.

    A change that claims to leave the batches alone (bitwise, numeric) is not to blame for what the baseline
    does as well.
    """
    result, before = isolation_of(candidate), isolation_of(baseline)
    if tier in ("bitwise", "numeric") and result.state in (before.state, "unknown"):
        as_before = result.state in ("leaks", "causality", "unknown")
        detail = "as in the baseline" if as_before else result.detail
        outcome = "pass" if result.state == "isolated" else "not-applicable"
        return ParityCheck.model_validate({"name": "isolation", "outcome": outcome, "detail": detail})
    outcome = {
        "isolated": "pass",
        "leaks": "fail",
        "causality": "fail",
        "unknown": "undecided",
        "not-packed": "not-applicable",
    }[result.state]
    prefix = {"leaks": "examples leak into each other: ", "causality": "tokens see later ones: "}
    return ParityCheck.model_validate(
        {"name": "isolation", "outcome": outcome, "detail": prefix.get(result.state, "") + result.detail}
    )
