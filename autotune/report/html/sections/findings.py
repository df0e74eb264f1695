"""Findings with their evidence, places, bounds and the edits that mend them."""

from __future__ import annotations

from autotune.records.findings import CodeSite, Finding
from autotune.records.ladder import Ladder
from autotune.report.html.gather import Material
from autotune.report.html.view import FindingView, Section
from autotune.report.html.words import near_path, slug, times

_PLACES = 5


def section(material: Material) -> Section | None:
    """None when nothing was found."""
    findings = material.diagnosis.findings
    if not findings:
        return None
    count = len(findings)
    title = "Finding" if count == 1 else f"Findings ({count})"
    lead = "The most important first. A bound says what a cause can cost at most, not what mending it brings."
    return Section("findings", title, [view(finding, material) for finding in findings], lead)


def view(finding: Finding, material: Material) -> FindingView:
    """One finding as it is shown."""
    cwd = material.card.cwd
    titles = {other.rule: other.title for other in material.diagnosis.findings}
    bound = times(finding.gain.ratio_upper) if finding.gain.ratio_upper is not None else ""
    named = f" {material.named}" if material.named else ""
    change = material.changes.get(finding.rule)
    editable = change is not None and bool(change.files or change.command)
    places = [_place(site, cwd) for site in finding.sites[:_PLACES]]
    if len(finding.sites) > _PLACES:
        places.append((f"and {len(finding.sites) - _PLACES} more places", ""))
    return FindingView(
        anchor=f"finding-{slug(finding.rule)}",
        rule=finding.rule,
        title=finding.title,
        severity=finding.severity,
        confidence=finding.confidence,
        bound=bound,
        bound_basis=finding.gain.basis,
        paragraphs=[" ".join(part.split()) for part in finding.message.strip().split("\n\n") if part.strip()],
        evidence=[(item.text, item.basis) for item in finding.evidence],
        places=places,
        fixes=[f"{fix.title} ({fix.surface}, {fix.applicability})" for fix in finding.fixes],
        caution=" ".join(finding.caution.split()),
        explained_by=titles.get(finding.explained_by, finding.explained_by) if finding.explained_by else "",
        tried=_tried(finding.rule, material.ladder),
        command=f"autotune apply{named} --select {finding.rule}" if editable else "",
        change=change if change is not None and (editable or change.reason) else None,
    )


def _place(site: CodeSite, cwd: str) -> tuple[str, str]:
    return f"{near_path(site.file, cwd)}:{site.line}", site.code


def _tried(rule: str, ladder: Ladder | None) -> str:
    """What became of the finding's change in this run; "" when it was not tried."""
    if ladder is None:
        return ""
    for rung in ladder.rungs[1:]:
        if rule in rung.rules and rung.ratio_to_previous is not None:
            alone = f" together with {len(rung.rules) - 1} more" if len(rung.rules) > 1 else ""
            return f"Kept{alone}: {times(rung.ratio_to_previous)} measured in this run."
    for entry in ladder.dropped:
        if rule in entry.rules:
            return f"{entry.how.replace('-', ' ').capitalize()}: {entry.reason}"
    return ""
