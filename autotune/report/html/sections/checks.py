"""What was checked and is fine, what could not be decided, and what limits the report."""

from __future__ import annotations

from autotune.report.html.gather import Material
from autotune.report.html.view import Block, Checks, Note, Section


def undecided(material: Material) -> Section | None:
    """Rules without their facts, grouped by what would decide them."""
    items = material.diagnosis.undecided
    if not items:
        return None
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for item in items:
        how = "; ".join(item.decided_by) or "not known how"
        groups.setdefault(how, []).append(
            ("undecided", item.title, f"{item.rule}; needs {', '.join(item.missing)}")
        )
    blocks: list[Block] = [Checks(f"Decided by: {how}", rows) for how, rows in groups.items()]
    return Section("undecided", f"Could not be decided ({len(items)})", blocks, folded=True)


def passed(material: Material) -> Section | None:
    """Rules that were checked and did not match, by category."""
    items = material.diagnosis.passed
    if not items:
        return None
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for item in items:
        category = item.rule.split("/", 1)[0]
        groups.setdefault(category, []).append(("fine", item.title, item.margin or item.rule))
    blocks: list[Block] = [Checks(category, rows) for category, rows in groups.items()]
    return Section("passed", f"Checked and found fine ({len(items)})", blocks, folded=True)


def not_applicable(material: Material) -> Section | None:
    """Rules that say nothing about this kind of job, by the reason."""
    items = material.diagnosis.not_applicable
    if not items:
        return None
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for item in items:
        groups.setdefault(item.reason or "not for this job", []).append(("no", item.title, item.rule))
    blocks: list[Block] = [Checks(reason, rows) for reason, rows in groups.items()]
    return Section("not-applicable", f"Does not apply to this job ({len(items)})", blocks, folded=True)


def notes(material: Material) -> Section | None:
    """What lowers the confidence in the report."""
    lines = [*material.diagnosis.notes, *material.notes]
    for rank in material.before.traces.ranks if material.before.traces is not None else []:
        lines += [f"{rank.file.name}: {warning.text}" for warning in rank.validity.warnings]
    if not lines:
        return None
    return Section("notes", "Notes", [Note(line, "caution") for line in dict.fromkeys(lines)])
