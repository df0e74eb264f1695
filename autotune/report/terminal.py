"""A diagnosis as one terminal screen: verdict, figures, findings by gain, what passed, what is undecided."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from autotune.records.facts import FactSheet
from autotune.records.findings import CodeSite, Diagnosis, Evidence, Finding
from autotune.report.figures import figures, step_bar
from autotune.report.wrapping import wrap

_MARK = {"critical": "!!", "high": "! ", "medium": "* ", "low": "- ", "info": "i "}


def render_diagnosis(
    diagnosis: Diagnosis,
    *,
    run_hint: str = "",
    full: bool = False,
    price_per_gpu_hour: float | None = None,
    job: bool = True,
    goes_on: bool = False,
) -> str:
    """The report as text of at most 80 columns.

    `run_hint` is how the user names this run ("" for latest), `full` adds what does not fit on one screen,
    `job` says that there is a job which could be patched (not so for saved traces); `goes_on`: what can be
    applied is tried next, without a further command.
    """
    facts = FactSheet(facts=diagnosis.facts)
    lines = [*wrap(diagnosis.verdict)]
    shown = figures(facts, diagnosis.findings, price_per_gpu_hour)
    lines += ["", *shown] if shown else []
    lines += step_bar(facts)
    lines += _findings(diagnosis, run_hint, full, job)
    lines += _checked(diagnosis)
    lines += _undecided(diagnosis, full)
    for note in diagnosis.notes:
        lines += ["", *wrap(f"Note: {note}", hang=6)]
    if not goes_on:
        lines += ["", *_next(diagnosis, run_hint, full, job)]
    return "\n".join(lines)


def _findings(diagnosis: Diagnosis, run_hint: str, full: bool, job: bool) -> list[str]:
    if not diagnosis.findings:
        return []
    lines = ["", f"Findings ({len(diagnosis.findings)}), the most important first:"]
    for number, finding in enumerate(diagnosis.findings, 1):
        if full:
            lines += _in_full(number, finding, run_hint, job)
        elif finding.explained_by is not None or finding.severity == "info":
            lines += _in_a_line(number, finding)
        else:
            lines += _in_short(number, finding, run_hint, job)
    return lines


def _worth(finding: Finding) -> str:
    ratio = finding.gain.ratio_upper
    return f"up to {ratio:.2f}x" if ratio is not None and ratio >= 1.005 else ""


def _head(number: int, finding: Finding) -> list[str]:
    worth = _worth(finding)
    title = f"{number:>2}. {_MARK[finding.severity]}{finding.title}"
    return wrap(f"{title}: {worth}" if worth else title, hang=6)


def _in_a_line(number: int, finding: Finding) -> list[str]:
    """A symptom of a cause above it, or something only to be known."""
    why = f"a symptom of {finding.explained_by}" if finding.explained_by else "for your information"
    if not finding.explained_by and finding.evidence:
        why += f": {min(finding.evidence, key=_dullness).text}"
    return [*_head(number, finding), *wrap(f"      {finding.rule}: {why}", hang=6)]


def _in_short(number: int, finding: Finding, run_hint: str, job: bool) -> list[str]:
    lines = _head(number, finding)
    lines += wrap(f"      {finding.rule}, {finding.severity}, confidence {finding.confidence}", hang=6)
    message = " ".join(finding.message.split("\n\n")[0].split())
    lines += wrap(f"      {_first_sentences(message)}", hang=6)
    fresh = [e for e in finding.evidence if not _told(e.value, message)]
    telling = sorted(fresh, key=_dullness)[:2]
    if telling:
        lines += wrap(f"      evidence: {'; '.join(e.text for e in telling)}", hang=6)
    lines += _sites(finding.sites, 1)
    return lines + _fix(finding, run_hint, job)


def _in_full(number: int, finding: Finding, run_hint: str, job: bool) -> list[str]:
    lines = ["", *_head(number, finding)]
    facts = [f"{finding.rule}, {finding.severity}, confidence {finding.confidence}"]
    if finding.gain.ratio_upper is not None:
        facts.append(f"worth at most {finding.gain.ratio_upper:.2f}x ({finding.gain.basis})")
    if finding.explained_by:
        facts.append(f"explained by {finding.explained_by}")
    for fact in facts:
        lines += wrap(f"      {fact}", hang=6)
    for paragraph in finding.message.strip().split("\n\n"):
        lines += wrap("      " + " ".join(paragraph.split()), hang=6)
    for evidence in finding.evidence:
        basis = f" ({evidence.basis})" if evidence.basis else ""
        lines += wrap(f"      - {evidence.text}{basis}", hang=8)
    lines += _sites(finding.sites, 3)
    lines += _fix(finding, run_hint, job)
    if finding.caution:
        lines += wrap("      caution: " + " ".join(finding.caution.split()), hang=15)
    return lines


def _sites(sites: list[CodeSite], most: int) -> list[str]:
    most += len(sites) == most + 1  # one more place takes no more room than saying so
    lines = [
        line
        for site in sites[:most]
        for line in wrap(f"      at {_near(site.file)}:{site.line}  {site.code}".rstrip(), hang=9)
    ]
    more = len(sites) - most
    return lines + ([f"      and {more} more place{'s' if more > 1 else ''}"] if more > 0 else [])


def _near(file: str) -> str:
    """The path as one would type it here."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


def _fix(finding: Finding, run_hint: str, job: bool) -> list[str]:
    if not finding.fixes:
        return []
    fix = finding.fixes[0]
    lines = wrap(f"      fix: {fix.title} [{fix.surface}, {fix.applicability}]", hang=11)
    if fix.steps and job:
        insist = " --unsafe" if fix.applicability == "review" else ""
        lines.append(f"      try: autotune apply{run_hint} --select {finding.rule}{insist}")
    return lines


def _checked(diagnosis: Diagnosis) -> list[str]:
    lines: list[str] = []
    if diagnosis.passed:
        counts = _by_category(p.rule for p in diagnosis.passed)
        lines += ["", *wrap(f"Checked and fine ({len(diagnosis.passed)}): {counts}", hang=2)]
    if diagnosis.not_applicable:
        reasons = Counter(reason for n in diagnosis.not_applicable for reason in n.reason.split("; "))
        told = ", ".join(reason for reason, _ in reasons.most_common(4))
        head = f"Does not apply here ({len(diagnosis.not_applicable)}): {told}"
        lines += ["", *wrap(head, hang=2)]
    return lines


def _undecided(diagnosis: Diagnosis, full: bool) -> list[str]:
    if not diagnosis.undecided:
        return []
    lines = ["", f"Could not be decided ({len(diagnosis.undecided)}), and what decides it:"]
    groups: dict[str, list[str]] = {}
    for item in diagnosis.undecided:
        groups.setdefault("; ".join(item.decided_by) or "unknown", []).append(item.rule)
    for how, rules in groups.items():
        named = ", ".join(rules) if full or len(rules) <= 3 else _by_category(rules)
        lines += wrap(f"  {how} ({len(rules)}): {named}", hang=4)
    return lines


def _by_category(rules: Iterable[str]) -> str:
    counts = Counter(rule.split("/", 1)[0] for rule in rules)
    return ", ".join(f"{category} {count}" for category, count in counts.items())


def _next(diagnosis: Diagnosis, run_hint: str, full: bool, job: bool) -> list[str]:
    """The commands that lead on from here."""
    lines: list[str] = []
    if not job:
        lines += wrap("next: autotune analyze -- COMMAND watches the job itself and decides the rest", hang=6)
    elif any(fix.steps for finding in diagnosis.findings for fix in finding.fixes):
        shows, proves = f"autotune apply{run_hint}", f"autotune verify{run_hint}"
        lines += wrap(f"next: {shows} shows the changes; {proves} proves them", hang=6)
    if not full and (diagnosis.findings or diagnosis.undecided):
        lines += wrap(f"more: autotune report{run_hint} --full tells the cautions and every rule", hang=6)
    return lines


def _first_sentences(text: str, limit: int = 200) -> str:
    """Whole sentences up to about `limit` characters, one at least."""
    kept = ""
    for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z0-9])", text):
        if kept and len(kept) + len(sentence) > limit:
            break
        kept = f"{kept} {sentence}".strip()
    return kept


def _dullness(evidence: Evidence) -> int:
    """Shares say most, other numbers more than names."""
    if isinstance(evidence.value, bool) or not isinstance(evidence.value, int | float):
        return 2
    return 0 if evidence.unit == "frac" else 1


def _told(value: object, message: str) -> bool:
    """The message says this number already."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return any(text in message for text in (f"{value:,.0f} ", f"{100 * value:.0f} %", f"{value:.1f} "))
