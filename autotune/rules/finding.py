"""The finding of a matched rule: texts filled in, bound and severity, evidence, places, fixes that apply."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from autotune.errors import InputError
from autotune.records.facts import FactSheet, FactValue
from autotune.records.findings import CodeSite, Evidence, Finding, Fix, FixStep, Gain
from autotune.records.sites import Site
from autotune.records.terms import Severity
from autotune.rules import templates
from autotune.rules.compile import LoadedRule
from autotune.rules.expression import Facts
from autotune.rules.model import FixWay
from autotune.rules.parse import Catalogue
from autotune.rules.steps import AtSite, UseShim
from autotune.rules.truth import NOT_APPLICABLE, Operand
from autotune.rules.words import with_unit

LOW_BELOW = 0.03  # share of speed gained at most; severity steps of the product's contract
HIGH_ABOVE = 0.20
_LARGEST_SAVING = 0.98  # a bound above 50x says nothing


@dataclass(frozen=True)
class Context:
    """What rendering a finding needs."""

    sheet: FactSheet
    facts: Facts
    catalogue: Catalogue
    groups: Mapping[str, None]
    tables: Mapping[str, object]
    sites: Sequence[Site]

    def text(self, template: str) -> str:
        return templates.render(template, self.facts, self.groups, self.tables)

    def prose(self, template: str) -> str:
        """A message: paragraphs without the line breaks of the file."""
        paragraphs = (" ".join(part.split()) for part in self.text(template).split("\n\n"))
        return "\n\n".join(part for part in paragraphs if part)


def make_context(
    sheet: FactSheet, catalogue: Catalogue, tables: Mapping[str, object], sites: Sequence[Site]
) -> Context:
    return Context(sheet, operands(sheet), catalogue, templates.groups_of(catalogue), tables, sites)


def operands(sheet: FactSheet) -> dict[str, Operand]:
    """Fact values as expressions read them; absent facts are left out."""
    result: dict[str, Operand] = {}
    for name, fact in sheet.facts.items():
        if fact.state == "not-applicable":
            result[name] = NOT_APPLICABLE
        elif fact.state == "value" and fact.value is not None:
            result[name] = fact.value
    return result


def make_finding(loaded: LoadedRule, context: Context) -> Finding:
    """The finding of a matched rule, with its texts filled in; its cause is left to the ranking."""
    try:
        return _finding(loaded, context)
    except templates.TemplateFault as fault:
        raise InputError(
            f"a text of the rule {loaded.id} cannot be rendered: {fault}",
            where=loaded.source.path,
            code="rule-text",
        ) from fault


def bare_finding(loaded: LoadedRule, why: str) -> Finding:
    """The finding of a matched rule whose texts cannot be filled in: it says so, and changes nothing."""
    rule = loaded.rule
    return Finding(
        rule=rule.id,
        title=rule.title,
        severity=rule.severity,
        confidence=rule.confidence,
        message=f"The rule fires, but {why} ({loaded.source.path}). What it would change is left out.",
        evidence=[],
        gain=Gain(),
    )


def _finding(loaded: LoadedRule, context: Context) -> Finding:
    rule = loaded.rule
    gain, loose = bound(loaded, context)
    return Finding(
        rule=rule.id,
        title=rule.title,
        severity=severity_of(rule.severity, gain, loose),
        confidence=rule.confidence,
        message=context.prose(rule.message),
        evidence=[item for name in rule.evidence if (item := evidence(name, context)) is not None],
        gain=gain,
        sites=_sites(loaded, context),
        fixes=fixes(loaded, context),
        caution=context.prose(rule.caution),
        parity=rule.parity,
        after=rule.after,
        excludes=rule.excludes,
        together_with=rule.together_with,
        references=rule.references,
    )


def bound(loaded: LoadedRule, context: Context) -> tuple[Gain, bool]:
    """The upper bound of the first way whose facts are known, and whether it is a loose one."""
    for way, (condition, node) in zip(loaded.rule.gain, loaded.gains, strict=True):
        if condition is not None and condition.truth(context.facts) is not True:
            continue
        value = node.operand(context.facts)
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        if way.step_time_saved_frac is not None:
            value = 1 / (1 - min(max(value, 0.0), _LARGEST_SAVING))
        if value > 0:
            return Gain(ratio_upper=round(max(value, 1.0), 4), basis=context.text(way.basis)), way.loose
    return Gain(), False


def severity_of(written: Severity, gain: Gain, loose: bool = False) -> Severity:
    """The severity a bound stands for; critical and info are not a matter of speed."""
    if written in ("critical", "info") or gain.ratio_upper is None or loose:
        return written
    more = gain.ratio_upper - 1
    if more < LOW_BELOW:
        return "low"
    return "high" if more > HIGH_ABOVE else "medium"


def evidence(name: str, context: Context) -> Evidence | None:
    """One line of evidence from the catalogue's meaning; None when the fact has no value."""
    fact: FactValue = context.sheet.get(name)
    if fact.state != "value" or fact.value is None:
        return None
    entry = context.catalogue[name]
    text = f"{entry.meaning}: {with_unit(fact.value, entry.unit)}"
    return Evidence(fact=name, value=fact.value, unit=entry.unit, text=text, basis=fact.basis or fact.source)


def fixes(loaded: LoadedRule, context: Context) -> list[Fix]:
    """The ways that apply here; one whose places were not seen becomes advice, behind the others."""
    ready: list[Fix] = []
    advice: list[Fix] = []
    for way, condition in zip(loaded.rule.fix, loaded.applies, strict=True):
        if condition is not None and condition.truth(context.facts) is not True:
            continue
        fix = _fix(way, context, loaded.shims)
        (ready if fix.steps else advice).append(fix)
    return ready + advice


def _fix(way: FixWay, context: Context, shims: Mapping[str, str]) -> Fix:
    title = context.text(way.title)
    placed = all(
        _places(step, context.sites) for step in way.steps if isinstance(step, AtSite) and not step.optional
    )
    if not way.steps or not placed:
        return Fix(surface=way.surface, title=title, applicability="advice")
    return Fix(
        surface=way.surface,
        title=title,
        applicability=way.applicability,
        steps=[_rendered(step, context, shims) for step in way.steps],
        requires=way.requires,
        predicts=way.predicts,
        parity=way.parity,
    )


def _rendered(step: BaseModel, context: Context, shims: Mapping[str, str]) -> FixStep:
    values = step.model_dump(exclude={"action"}, exclude_unset=True)
    arguments = {
        key: _filled(value, context)
        for key, value in values.items()
        if value not in ([], {}) and not (value is None and key != "value")
    }
    if isinstance(step, UseShim) and step.template in shims:
        arguments["template"] = shims[step.template]  # the text, as the pack may change or move
    return FixStep(action=str(getattr(step, "action")), arguments=arguments)  # noqa: B009


def _filled(value: object, context: Context) -> object:
    if isinstance(value, str):
        return context.text(value)
    if isinstance(value, dict):
        return {key: _filled(inner, context) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, context) for inner in value]
    return value


def _places(step: AtSite, sites: Sequence[Site]) -> list[Site]:
    return [
        site
        for site in sites
        if site.kind == step.at
        and site.editable
        and (not step.callees or any(re.search(pattern, site.callee) for pattern in step.callees))
    ]


def _edited(ways: Sequence[FixWay], sites: Sequence[Site]) -> list[Site]:
    steps = [step for way in ways for step in way.steps if isinstance(step, AtSite)]
    return [site for step in steps for site in _places(step, sites)]


def _sites(loaded: LoadedRule, context: Context) -> list[CodeSite]:
    """Places of the fixes that apply, in the order of their steps; then the rule's own; else of any fix."""
    sites = context.sites
    ways = list(zip(loaded.rule.fix, loaded.applies, strict=True))
    apply = [way for way, holds in ways if holds is None or holds.truth(context.facts) is True]
    found = _edited(apply, sites)
    found += [site for kind in loaded.rule.sites for site in sites if site.kind == kind]
    found = found or _edited(loaded.rule.fix, sites)
    return [
        CodeSite(
            file=site.file,
            line=site.line,
            end_line=site.span.end_line if site.span else None,
            callee=site.callee,
        )
        for site in {id(site): site for site in found}.values()
    ]
