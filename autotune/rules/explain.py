"""One rule laid open: its condition as a tree with this run's values, where they came from, and its fixes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from autotune.records.facts import FactSheet
from autotune.rules.compile import LoadedRule
from autotune.rules.expression import Facts, Logic, Node, fact_names
from autotune.rules.match import decide, margin, missing_facts, operands
from autotune.rules.parse import Catalogue
from autotune.rules.truth import ABSENT, Truth, both, either, negate
from autotune.rules.words import with_unit

Mark = Literal["✓", "✗", "?", " "]


@dataclass(frozen=True)
class Line:
    """One line of the tree."""

    depth: int
    mark: Mark
    text: str
    values: list[str] = field(default_factory=list)  # "fact = value (source; basis)"


@dataclass(frozen=True)
class Explanation:
    """A rule, with a run's facts or without."""

    rule: str
    answer: str  # match, no-match, unknown; empty without a run
    lines: list[Line]
    missing: list[str]
    decided_by: list[str]
    margin: str


def explain(loaded: LoadedRule, catalogue: Catalogue, sheet: FactSheet | None = None) -> Explanation:
    """The condition tree; with `sheet` every line is marked true, false or unknown for that run."""
    facts = operands(sheet) if sheet is not None else None
    lines: list[Line] = []
    groups = (
        ("all of", loaded.all),
        ("at least one of", loaded.any),
        ("none of", loaded.none),
        ("unless known that", loaded.unless),
    )
    for title, nodes in groups:
        if not nodes:
            continue
        lines.append(Line(0, _group_mark(title, nodes, facts), title))
        for node in nodes:
            lines += _lines(node, 1, catalogue, sheet, facts)
    if sheet is None or facts is None:
        return Explanation(loaded.id, "", lines, [], [], "")
    answer = {True: "match", False: "no-match", None: "unknown"}[decide(loaded, facts)]
    missing = missing_facts(loaded, facts) if answer == "unknown" else []
    ways = list(dict.fromkeys(sheet.get(name).reason or catalogue[name].decided_by for name in missing))
    distance = margin(loaded, facts, catalogue) if answer == "no-match" else ""
    return Explanation(loaded.id, answer, lines, missing, ways, distance)


def _mark(truth: Truth) -> Mark:
    return "?" if truth is None else "✓" if truth else "✗"


def _group_mark(title: str, nodes: tuple[Node, ...], facts: Facts | None) -> Mark:
    if facts is None:
        return " "
    truths = [node.truth(facts) for node in nodes]
    if title == "all of":
        return _mark(both(truths))
    if title == "at least one of":
        return _mark(either(truths))
    return _mark(negate(either(truths)) if title == "none of" else True not in truths)


def _lines(
    node: Node, depth: int, catalogue: Catalogue, sheet: FactSheet | None, facts: Facts | None
) -> list[Line]:
    mark: Mark = " " if facts is None else _mark(node.truth(facts))
    if isinstance(node, Logic) and node.kind in ("and", "or"):
        lines = [Line(depth, mark, "all of" if node.kind == "and" else "at least one of")]
        for part in node.parts:
            lines += _lines(part, depth + 1, catalogue, sheet, facts)
        return lines
    return [Line(depth, mark, node.text, _values(node, catalogue, sheet, facts))]


def _values(node: Node, catalogue: Catalogue, sheet: FactSheet | None, facts: Facts | None) -> list[str]:
    if sheet is None or facts is None:
        return [f"{name}: {catalogue[name].meaning}" for name in fact_names(node)]
    values = []
    for name in fact_names(node):
        fact = sheet.get(name)
        if fact.state == "value":
            origin = "; ".join(part for part in (fact.source, fact.basis) if part)
            shown = with_unit(fact.value, catalogue[name].unit)
            values.append(f"{name} = {shown}" + (f" ({origin})" if origin else ""))
        elif facts.get(name, ABSENT) is ABSENT:
            values.append(f"{name}: not known ({fact.reason or catalogue[name].decided_by})")
        else:
            values.append(f"{name}: does not apply" + (f" ({fact.reason})" if fact.reason else ""))
    return values


def as_text(loaded: LoadedRule, explanation: Explanation) -> str:
    """The page a terminal shows."""
    rule = loaded.rule
    parts = [f"{rule.id}: {rule.title}", f"severity {rule.severity}, confidence {rule.confidence}"]
    if rule.parity:
        parts[-1] += f", parity {rule.parity}"
    if explanation.answer:
        parts.append(f"in this run: {explanation.answer}")
    parts.append("\nIt fires when")
    for line in explanation.lines:
        parts.append(f"{'  ' * (line.depth + 1)}{line.mark} {line.text}".rstrip())
        parts += [f"{'  ' * (line.depth + 2)}  {value}" for value in line.values]
    if explanation.margin:
        parts.append(f"\nDistance: {explanation.margin}")
    if explanation.missing:
        parts.append(f"\nUndecided for want of {', '.join(explanation.missing)}")
        parts += [f"  to decide it: {way}" for way in explanation.decided_by]
    if rule.gain:
        parts.append("\nAt most it gains")
        parts += [f"  {_gain_text(way.ratio, way.step_time_saved_frac)} - {way.basis}" for way in rule.gain]
    if rule.fix:
        parts.append("\nFixes, best first")
        for fix in rule.fix:
            condition = f"  (if {fix.applies_if})" if fix.applies_if else ""
            parts.append(f"  {fix.surface}, {fix.applicability}: {fix.title}{condition}")
    if rule.caution:
        parts += ["\nCaution", *(f"  {text}" for text in rule.caution.strip().split("\n"))]
    for title, others in (
        ("Applied after", rule.after),
        ("Together with", rule.together_with),
        ("Not together with", rule.excludes),
        ("A symptom of", rule.explained_by),
    ):
        if others:
            parts.append(f"\n{title}: {', '.join(others)}")
    if rule.references:
        parts += ["\nReferences", *(f"  {reference}" for reference in rule.references)]
    return "\n".join(parts)


def _gain_text(ratio: str | None, saved: str | None) -> str:
    return f"a ratio of {ratio}" if ratio is not None else f"a share of the step of {saved}"
