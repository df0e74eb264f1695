"""The proof: ratio of every pair with its interval, and the losses of both arms on top of each other."""

from __future__ import annotations

from autotune.records.verdict import Contrast, Verdict
from autotune.report.html.gather import Material
from autotune.report.html.plots import Curve, Panel, Panels, Ratio, Ratios
from autotune.report.html.view import Block, Checks, Figure, Note, Section, Table, filled
from autotune.report.html.words import amount, interval_text, milliseconds, plural, slug, times

_NAMES = {
    "whole": "All kept changes together",
    "verify": "Verification",
    "self-check": "The job against itself",
}
_COLOURS = {"faster": "green", "slower": "red", "no-measurable-change": "gray", "undecided": "gold"}
_GIB = 1024.0**3


def section(material: Material) -> Section | None:
    """None without trials."""
    titles = {f.rule: f.title for f in material.diagnosis.findings}
    blocks: list[Block] = []
    for name, verdict in material.verdicts:
        blocks += _verdict(name, verdict, titles, several=len(material.verdicts) > 1)
    if not blocks:
        return None
    lead = (
        "Whole runs of the original and the patched job in alternating order. A point is one pair of runs, "
        "the bar their interval; right of 1 the patched job is faster."
    )
    return Section("proof", "Proof: speed and training", blocks, lead)


def _verdict(name: str, verdict: Verdict, titles: dict[str, str], *, several: bool) -> list[Block]:
    title = _NAMES.get(name, f"Trial {int(name)}" if name.isdigit() else name)
    key = slug(name)
    blocks: list[Block] = [Note(f"{title}: {verdict.sentence}" if several else verdict.sentence)]
    contrasts = [c for c in verdict.contrasts if c.pair_ratios or c.ratio is not None]
    if contrasts:
        blocks.append(_ratios(key, contrasts, verdict, titles))
    arms = _arms(verdict, titles)
    if arms is not None:
        blocks.append(arms)
    losses = _losses(key, verdict)
    if losses is not None:
        blocks.append(losses)
    asked = [c for c in verdict.parity.checks if c.outcome != "not-applicable"]
    checks: list[tuple[str, str, str]] = [(c.outcome, c.name, c.detail) for c in asked]
    if checks:
        blocks.append(Checks(f"Training: {verdict.parity.sentence}", checks))
    if verdict.failure:
        blocks.append(Note(verdict.failure, "caution"))
    blocks += [Note(note, "caution") for note in verdict.notes]
    return blocks


def _ratios(key: str, contrasts: list[Contrast], verdict: Verdict, titles: dict[str, str]) -> Figure:
    arms = [arm.name for arm in verdict.arms]
    rows = [
        Ratio(
            compared(c, arms, titles),
            list(c.pair_ratios),
            c.ratio,
            c.interval,
            _COLOURS[c.outcome],
        )
        for c in contrasts
    ]
    table = Table(
        "Ratios of the pairs",
        ["compared", "outcome", "ratio", "interval", "pairs", "measured in"],
        [
            [
                row.name,
                contrast.outcome.replace("-", " "),
                times(contrast.ratio) if contrast.ratio is not None else "",
                interval_text(contrast.interval),
                ", ".join(f"{ratio:.3f}" for ratio in contrast.pair_ratios),
                contrast.unit,
            ]
            for row, contrast in zip(rows, contrasts, strict=True)
        ],
        frozenset({2, 3}),
    )
    first = contrasts[0]
    confidence = f"{100 * first.confidence:.0f} %"
    said = "; ".join(c.sentence for c in contrasts)
    return Figure(
        f"ratios-{key}",
        "Speed, pair by pair",
        f"Ratio of each pair of runs with its {confidence} interval. {said}",
        Ratios(rows, "times as fast"),
        table,
        f"{confidence} intervals over pairs of whole runs; unit: {first.unit}"
        + (f" ({first.unit_reason})" if first.unit_reason else "")
        + ".",
    )


def compared(contrast: Contrast, arms: list[str], titles: dict[str, str]) -> str:
    """What a ratio is of. With several arms each holds the changes of those before it and one more."""
    if len(arms) < 3 or contrast.candidate not in arms or contrast.reference not in arms:
        candidate, reference = (titles.get(name, name) for name in (contrast.candidate, contrast.reference))
        return f"{candidate} against {reference}"
    first, last = arms.index(contrast.reference), arms.index(contrast.candidate)
    if last - first == 1:
        return f"change {last}: {titles.get(contrast.candidate, contrast.candidate)}"
    return f"changes {first + 1} to {last} together"


def _arm_name(at: int, arms: list[str], titles: dict[str, str]) -> str:
    title = titles.get(arms[at], arms[at])
    if at == 0 or len(arms) < 3:
        return title
    return f"change 1: {title}" if at == 1 else f"changes 1 to {at}, the last: {title}"


def _arms(verdict: Verdict, titles: dict[str, str]) -> Table | None:
    rows = []
    names = [arm.name for arm in verdict.arms]
    for at, arm in enumerate(verdict.arms):
        held = arm.memory.reserved_bytes or arm.memory.host_rss_bytes
        kind = "" if arm.memory.reserved_bytes else " (host)"
        rows.append(
            [
                _arm_name(at, names, titles),
                milliseconds(arm.step_ms) if arm.step_ms is not None else "",
                f"{arm.useful_tokens_per_s:,.0f}" if arm.useful_tokens_per_s is not None else "",
                f"{amount(held / _GIB)} GiB{kind}" if held else "",
            ]
        )
    if not any(cell for row in rows for cell in row[1:]):
        return None
    return filled(
        Table("Arms", ["arm", "step", "useful tokens/s", "peak memory"], rows, frozenset({1, 2, 3}))
    )


def _losses(key: str, verdict: Verdict) -> Figure | None:
    steps = verdict.parity.steps
    if not steps:
        return None
    x = [float(step.index) for step in steps]
    curves = [Curve("original", x, [step.baseline for step in steps], "blue")]
    if any(step.repeat is not None for step in steps):
        curves.append(Curve("original, run again", x, [step.repeat for step in steps], "gray", "points"))
    curves.append(Curve("patched", x, [step.candidate for step in steps], "orange", "dashed"))
    table = Table(
        "Loss of each step",
        ["step", "original", "run again", "patched", "difference", "allowed", ""],
        [
            [
                str(step.index),
                f"{step.baseline:.6g}",
                f"{step.repeat:.6g}" if step.repeat is not None else "",
                f"{step.candidate:.6g}",
                f"{step.difference_frac:.1e}",
                f"{step.tolerance_frac:.1e}",
                "equal" if step.equal else "different",
            ]
            for step in steps
        ],
        frozenset({0, 1, 2, 3, 4, 5}),
    )
    largest = verdict.parity.largest_difference_frac
    said = (
        f"largest difference {largest:.1e} of the loss" if largest is not None else "differences in the table"
    )
    return Figure(
        f"losses-{key}",
        "Loss of both arms",
        f"Loss of the original and of the patched job over {plural(len(steps), 'step')}: {said}.",
        Panels("optimizer step", [Panel("loss", curves, from_zero=False)]),
        filled(table),
        f"Same seed, same data: {said}. Where the lines cover each other the losses agree.",
    )
