"""Rules against the facts of a run: findings in order of importance, what is undecided, what passed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.errors import InputError
from autotune.records.facts import FactSheet
from autotune.records.findings import Finding, NotApplicable, Passed, Undecided
from autotune.records.sites import Site
from autotune.records.terms import Severity
from autotune.rules.compile import LoadedRule
from autotune.rules.expression import (
    Compare,
    FactRef,
    Facts,
    Literal_,
    Node,
    fact_names,
    undecided_facts,
    walk,
)
from autotune.rules.finding import Context, bare_finding, make_context, make_finding, operands
from autotune.rules.parse import Catalogue
from autotune.rules.ranking import ranked
from autotune.rules.truth import ABSENT, NOT_APPLICABLE, Truth, both, either, negate
from autotune.rules.words import with_unit

__all__ = ["Matched", "decide", "match", "missing_facts", "operands"]


# A line of a condition about one of these alone asks what kind of job it is, not how the job does:
# what is said when the answer is yes, and when it is no.
_KINDS_OF_JOB = {
    "run.has_gpu": ("a GPU job", "no GPU"),
    "run.is_training": ("a training job", "no training"),
    "run.world_size": ("several ranks", "one rank"),
    "data.is_text_batch": ("batches of text", "no batches of text"),
}


@dataclass(frozen=True)
class Matched:
    """The answer of all rules."""

    findings: list[Finding]  # most important first
    undecided: list[Undecided]
    passed: list[Passed]
    not_applicable: list[NotApplicable]


def match(
    rules: Iterable[LoadedRule],
    sheet: FactSheet,
    *,
    catalogue: Catalogue,
    tables: Mapping[str, object] | None = None,
    sites: Sequence[Site] = (),
    severity: Mapping[str, Severity] | None = None,
) -> Matched:
    """Decide every rule on the facts of a run; `severity` replaces that of findings, by rule id.

    A matched rule whose texts cannot be filled in is found all the same, and says why.
    """
    context = make_context(sheet, catalogue, tables or {}, sites)
    findings: list[Finding] = []
    causes: dict[str, list[str]] = {}
    undecided: list[Undecided] = []
    passed: list[Passed] = []
    not_applicable: list[NotApplicable] = []
    levels = severity or {}
    for loaded in rules:
        truth = decide(loaded, context.facts)
        if truth is True:
            try:
                finding = make_finding(loaded, context)
            except InputError as fault:  # the facts of a run that has cost hours are worth more than one text
                finding = bare_finding(loaded, fault.what)
            level = levels.get(loaded.id, finding.severity)
            findings.append(finding.model_copy(update={"severity": level}))
            causes[loaded.id] = loaded.rule.explained_by
        elif truth is None:
            undecided.append(_undecided(loaded, context))
        elif reason := _inapplicable(loaded, context.facts, sheet):
            not_applicable.append(NotApplicable(rule=loaded.id, title=loaded.rule.title, reason=reason))
        else:
            passed.append(
                Passed(
                    rule=loaded.id, title=loaded.rule.title, margin=margin(loaded, context.facts, catalogue)
                )
            )
    return Matched(ranked(findings, causes), undecided, passed, not_applicable)


def decide(loaded: LoadedRule, facts: Facts) -> Truth:
    """Every line of `all`, one of `any`, none of `none`, and nothing of `unless` known to hold."""
    if any(node.truth(facts) is True for node in loaded.unless):
        return False
    parts: list[Truth] = [node.truth(facts) for node in loaded.all]
    if loaded.any:
        parts.append(either(node.truth(facts) for node in loaded.any))
    parts += [negate(node.truth(facts)) for node in loaded.none]
    return both(parts)


def _inapplicable(loaded: LoadedRule, facts: Facts, sheet: FactSheet) -> str:
    """Why a rule that says no says so only because facts do not apply here; empty when it looked and saw no.

    Were those facts merely unknown, the rule would be undecided. A rule that asks for a GPU or for several
    ranks and gets neither has not looked at anything either.
    """
    for node in loaded.all:
        read = fact_names(node)
        if len(read) == 1 and read[0] in _KINDS_OF_JOB and node.truth(facts) is False:
            yes, no = _KINDS_OF_JOB[read[0]]
            value = facts.get(read[0])
            return no if value is False or (value == 1 and value is not True) else yes
    known = {name: value for name, value in facts.items() if value is not NOT_APPLICABLE}
    if len(known) == len(facts) or decide(loaded, known) is False:
        return ""
    nodes = [*loaded.all, *loaded.any, *loaded.none]
    names = dict.fromkeys(name for node in nodes for name in fact_names(node))
    own = [name for name in names if facts.get(name) is NOT_APPLICABLE]
    reasons = dict.fromkeys(sheet.get(name).reason for name in own)
    return "; ".join(reason for reason in reasons if reason) or f"{', '.join(own)}: does not apply"


def missing_facts(loaded: LoadedRule, facts: Facts) -> list[str]:
    """The absent facts that keep a rule undecided."""
    nodes = [*loaded.all, *loaded.none]
    if loaded.any and either(node.truth(facts) for node in loaded.any) is None:
        nodes += loaded.any
    return list(dict.fromkeys(name for node in nodes for name in undecided_facts(node, facts)))


def _undecided(loaded: LoadedRule, context: Context) -> Undecided:
    missing = missing_facts(loaded, context.facts)
    ways = dict.fromkeys(context.catalogue[name].decided_by for name in missing)
    return Undecided(rule=loaded.id, title=loaded.rule.title, missing=missing, decided_by=list(ways))


def margin(loaded: LoadedRule, facts: Facts, catalogue: Catalogue) -> str:
    """How far a rule is from firing: the first comparison with a number that says no."""
    for node, wanted in [*((n, True) for n in loaded.all), *((n, True) for n in loaded.any)]:
        if node.truth(facts) is not wanted:
            text = _distance(node, facts, catalogue)
            if text:
                return text
    return ""


def _distance(node: Node, facts: Facts, catalogue: Catalogue) -> str:
    for part in walk(node):
        if not isinstance(part, Compare) or part.truth(facts) is not False:
            continue
        if isinstance(part.left, FactRef) and isinstance(part.right, Literal_):
            value, limit = part.left.operand(facts), part.right.value
            if isinstance(limit, bool) or not isinstance(limit, int | float):
                continue
            if value in (ABSENT, NOT_APPLICABLE):
                continue
            entry = catalogue[part.left.name]
            return f"{entry.meaning}: {with_unit(value, entry.unit)}, limit {with_unit(limit, entry.unit)}"
    return ""
