"""Markdown for a pull request or a job summary: the sentence, figures, a table of findings, the proof."""

from __future__ import annotations

import os
import re
from pathlib import Path

from autotune.console import printable
from autotune.records.findings import Finding
from autotune.records.ladder import Ladder
from autotune.report.figures import figures, step_bar
from autotune.report.ladder import headline
from autotune.report.sources import Sources
from autotune.report.wrapping import durations

_MENTION = re.compile(r"(?<!\w)@(?=[A-Za-z0-9])")
_BLOCK = re.compile(r"(?m)^(\s*)([#=]|[-*_]{3,}\s*$)")


def markdown(sources: Sources, price_per_gpu_hour: float | None = None) -> str:
    """The whole text; GitHub and GitLab show it alike."""
    diagnosis = sources.diagnosis
    lines = ["## autotune", "", _line(diagnosis.verdict), ""]
    shown = [*figures(sources.facts, diagnosis.findings, price_per_gpu_hour), *step_bar(sources.facts)]
    if shown:
        lines += ["```text", *(printable(line).replace("`", "'") for line in shown), "```", ""]
    if sources.ladder is not None:
        lines += _ladder(sources.ladder)
    elif sources.verdict is not None:
        lines += ["### Proof", "", _line(sources.verdict.sentence), ""]
    lines += _findings(diagnosis.findings, sources)
    counts = (
        f"{len(diagnosis.passed)} rules checked and fine, {len(diagnosis.undecided)} undecided, "
        f"{len(diagnosis.not_applicable)} do not apply"
    )
    lines += [f"{counts}. Run `{sources.run.id}`.", ""]
    for note in diagnosis.notes:
        lines += [f"> {_line(note)}", ""]
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
            f"<details><summary>{number}. {_line(finding.title)}</summary>",
            "",
            _text(finding.message.strip()),
            "",
            *(f"- {_line(evidence.text)}" for evidence in finding.evidence),
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
    return f"`{_code(file)}:{site.line}`{more}"


def _ladder(ladder: Ladder) -> list[str]:
    lines = [
        "### Proof",
        "",
        _line(headline(ladder)),
        "",
        "| change | step by step | in all |",
        "|---|---|---|",
    ]
    for rung in ladder.rungs:
        step = f"{rung.ratio_to_previous:.2f}x" if rung.ratio_to_previous is not None else ""
        if rung.interval_to_previous is not None:
            step += f" ({rung.interval_to_previous[0]:.2f} to {rung.interval_to_previous[1]:.2f})"
        whole = f"{rung.ratio_to_first:.2f}x" if rung.ratio_to_first is not None else ""
        lines.append(f"| {_cell(rung.name)} | {step} | {whole} |")
    parity = next((rung.parity for rung in ladder.rungs[1:] if rung.parity), "")
    if parity:
        lines += ["", f"Training unchanged: {_line(parity)}"]
    first, last = ladder.rungs[0].projected_hours, ladder.rungs[-1].projected_hours
    if first is not None and last is not None and len(ladder.rungs) > 1:
        before, after = durations(first, last)
        lines += ["", f"Whole job: {before} before, {after} after (projected)."]
    return [*lines, ""]


def _text(text: str) -> str:
    """Foreign text must not become markup: no tags, links, pictures, headings, fences, mentions."""
    shown = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    shown = shown.replace("](", "]\\(").replace("```", "`\u200b``")
    shown = _MENTION.sub("@\u200b", shown)
    return _BLOCK.sub(r"\1\\\2", shown)


def _line(text: str) -> str:
    return " ".join(_text(text).split())


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")


def _code(text: str) -> str:
    """Between backticks nothing is markup but the backtick itself and, in a table, the bar."""
    return " ".join(printable(text).replace("`", "'").replace("|", "\\|").split())
