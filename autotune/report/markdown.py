"""Markdown for a pull request or a job summary: the sentence, figures, a table of findings, the proof."""

from __future__ import annotations

import os
from pathlib import Path

from autotune.records.findings import Finding
from autotune.records.ladder import Ladder
from autotune.report.figures import figures, step_bar
from autotune.report.ladder import headline
from autotune.report.sources import Sources
from autotune.report.wrapping import duration


def markdown(sources: Sources, price_per_gpu_hour: float | None = None) -> str:
    """The whole text; GitHub and GitLab show it alike."""
    diagnosis = sources.diagnosis
    lines = ["## autotune", "", _text(diagnosis.verdict), ""]
    shown = [*figures(sources.facts, diagnosis.findings, price_per_gpu_hour), *step_bar(sources.facts)]
    if shown:
        lines += ["```text", *shown, "```", ""]
    if sources.ladder is not None:
        lines += _ladder(sources.ladder)
    elif sources.verdict is not None:
        lines += ["### Proof", "", _text(sources.verdict.sentence), ""]
    lines += _findings(diagnosis.findings, sources)
    counts = (
        f"{len(diagnosis.passed)} rules checked and fine, {len(diagnosis.undecided)} undecided, "
        f"{len(diagnosis.not_applicable)} do not apply"
    )
    lines += [f"{counts}. Run `{sources.run.id}`.", ""]
    for note in diagnosis.notes:
        lines += [f"> {_text(note)}", ""]
    return "\n".join(lines)


def _findings(findings: list[Finding], sources: Sources) -> list[str]:
    if not findings:
        return []
    lines = ["### Findings", "", "| | finding | at most | where | fix |", "|---|---|---|---|---|"]
    for number, finding in enumerate(findings, 1):
        ratio = finding.gain.ratio_upper
        worth = f"{ratio:.2f}x" if ratio is not None and ratio >= 1.005 else ""
        where = _where(finding, sources)
        fix = finding.fixes[0].title if finding.fixes else ""
        title = f"**{_cell(finding.title)}**<br>`{finding.rule}`, {finding.severity}"
        if finding.explained_by:
            title += f", a symptom of `{finding.explained_by}`"
        lines.append(f"| {number} | {title} | {worth} | {where} | {_cell(fix)} |")
    lines.append("")
    for number, finding in enumerate(findings, 1):
        lines += [
            f"<details><summary>{number}. {_text(finding.title)}</summary>",
            "",
            _text(finding.message.strip()),
            "",
            *(f"- {_text(evidence.text)}" for evidence in finding.evidence),
            *(["", f"Caution: {_text(finding.caution.strip())}"] if finding.caution else []),
            "",
            "</details>",
            "",
        ]
    return lines


def _where(finding: Finding, sources: Sources) -> str:
    if not finding.sites:
        return ""
    site = finding.sites[0]
    file = site.file
    if sources.run.cwd and Path(file).is_absolute() and Path(file).is_relative_to(sources.run.cwd):
        file = os.path.relpath(file, sources.run.cwd)
    more = f" and {len(finding.sites) - 1} more" if len(finding.sites) > 1 else ""
    return f"`{_cell(file)}:{site.line}`{more}"


def _ladder(ladder: Ladder) -> list[str]:
    lines = ["### Proof", "", headline(ladder), "", "| change | step by step | in all |", "|---|---|---|"]
    for rung in ladder.rungs:
        step = f"{rung.ratio_to_previous:.2f}x" if rung.ratio_to_previous is not None else ""
        if rung.interval_to_previous is not None:
            step += f" ({rung.interval_to_previous[0]:.2f} to {rung.interval_to_previous[1]:.2f})"
        whole = f"{rung.ratio_to_first:.2f}x" if rung.ratio_to_first is not None else ""
        lines.append(f"| {_cell(rung.name)} | {step} | {whole} |")
    parity = next((rung.parity for rung in ladder.rungs[1:] if rung.parity), "")
    if parity:
        lines += ["", f"Training unchanged: {_text(parity)}"]
    first, last = ladder.rungs[0].projected_hours, ladder.rungs[-1].projected_hours
    if first is not None and last is not None and len(ladder.rungs) > 1:
        lines += ["", f"Whole job: {duration(first)} before, {duration(last)} after (projected)."]
    return [*lines, ""]


def _text(text: str) -> str:
    """Foreign text must not become markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cell(text: str) -> str:
    return " ".join(_text(text).replace("|", "\\|").split())
