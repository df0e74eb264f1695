"""A verdict as text: the sentence, the pairs behind it, parity, memory."""

from __future__ import annotations

from autotune.records.facts import FactSheet
from autotune.records.verdict import Verdict
from autotune.report.figures import number
from autotune.report.wrapping import durations, money, wrap

_GIB = 1024.0**3


def render_proof(verdict: Verdict, facts: FactSheet, price_per_hour: float | None) -> str:
    """What verify found, in short, below a diagnosis."""
    return "\n".join([*wrap(f"Verified: {verdict.sentence}", 2), *whole_job(verdict, facts, price_per_hour)])


def whole_job(verdict: Verdict, facts: FactSheet, price_per_hour: float | None) -> list[str]:
    """Hours and cost of the whole job before and after, when the patched job proved to be faster."""
    hours = number(facts, "run.projected_hours")
    if hours is None or verdict.outcome != "faster" or not verdict.ratio:
        return []
    after = hours / verdict.ratio
    lines = [f"whole job: {' -> '.join(durations(hours, after))} projected"]
    if price_per_hour is not None:
        costs = f"{money(hours * price_per_hour)} -> {money(after * price_per_hour)}"
        lines.append(f"cost: {costs} at {price_per_hour:g} an hour for all GPUs")
    return lines


def render_verdict(verdict: Verdict, run: str = "") -> str:
    """The answer of verify, at most 80 columns; `run` is the name of the run it is about."""
    lines = wrap(f"{run}: {verdict.sentence}" if run else verdict.sentence, 2 if run else 0)
    if verdict.arms:
        lines += ["", f"{'arm':<24}{'ms/step':>12}{'useful tok/s':>15}{'peak GiB':>11}"]
        for arm in verdict.arms:
            step = f"{arm.step_ms:,.1f}" if arm.step_ms is not None else "-"
            rate = f"{arm.useful_tokens_per_s:,.0f}" if arm.useful_tokens_per_s is not None else "-"
            held = arm.memory.reserved_bytes or arm.memory.host_rss_bytes
            peak = f"{held / _GIB:.2f}" if held else "-"
            lines.append(f"{arm.name[:23]:<24}{step:>12}{rate:>15}{peak:>11}")
    for contrast in verdict.contrasts:
        pairs = ", ".join(f"{ratio:.3f}" for ratio in contrast.pair_ratios)
        told = contrast.sentence in verdict.sentence  # the paragraph is there already
        names = f"{contrast.candidate} against {contrast.reference}"
        if not told:
            lines += wrap(f"{names}: {contrast.sentence}", 2)
        if pairs:
            lines += wrap(f"{names}, by pair: {pairs}" if told else f"  by pair: {pairs}", 4)
    if verdict.parity.outcome != "not-run":
        told = verdict.parity.sentence in verdict.sentence
        lines += ["", *wrap(f"training: {verdict.parity.outcome if told else verdict.parity.sentence}", 2)]
        for check in verdict.parity.checks:
            if check.outcome != "not-applicable":
                lines += wrap(f"  {check.outcome:<10} {check.name}: {check.detail}", 13)
    for note in verdict.notes:
        lines += wrap(f"note: {note}", 6)
    if verdict.failure:
        lines += ["", *wrap(f"why: {verdict.failure}", 5)]
    lines += ["", f"{len(verdict.trials)} starts of the job, {verdict.minutes_spent:.1f} minutes"]
    return "\n".join(lines)
