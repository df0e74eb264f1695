"""A rule's own examples: does it answer to their facts as it says?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autotune.errors import InputError
from autotune.records.facts import FactSheet, FactValue
from autotune.records.findings import Finding
from autotune.rules.compile import LoadedRule
from autotune.rules.finding import fixes, make_context, make_finding, operands
from autotune.rules.match import decide, missing_facts
from autotune.rules.model import Example
from autotune.rules.parse import Catalogue
from autotune.rules.truth import Truth

_WORDS: dict[Truth, str] = {True: "match", False: "no-match", None: "unknown"}


@dataclass(frozen=True)
class ExampleResult:
    """One example that was run; `fault` is empty when the rule answered as expected."""

    rule: str
    example: str
    fault: str = ""
    finding: Finding | None = None


def example_sheet(example: Example) -> FactSheet:
    """The facts of an example; null is a fact that does not apply."""
    facts = {
        name: FactValue(state="not-applicable", reason="given by the example")
        if value is None
        else FactValue(state="value", value=value, source="example")
        for name, value in example.facts.items()
    }
    return FactSheet(facts=facts)


def run_examples(rules: Iterable[LoadedRule], catalogue: Catalogue) -> list[ExampleResult]:
    """Every example of every rule."""
    return [run_example(loaded, example, catalogue) for loaded in rules for example in loaded.rule.examples]


def run_example(loaded: LoadedRule, example: Example, catalogue: Catalogue) -> ExampleResult:
    """One example: the decision, and for a match the texts and the first fix where the example names them."""
    sheet = example_sheet(example)
    facts = operands(sheet)
    truth = decide(loaded, facts)
    answer = _WORDS[truth]
    if answer != example.expect:
        why = ""
        if truth is None:
            why = f"; without {', '.join(missing_facts(loaded, facts))} it cannot be decided"
        return ExampleResult(loaded.id, example.name, f"expected {example.expect}, got {answer}{why}")
    if truth is not True:
        return ExampleResult(loaded.id, example.name)
    context = make_context(sheet, catalogue, {}, ())
    try:
        finding = make_finding(loaded, context)
        titles = [fix.title for fix in fixes(loaded, context)]
    except InputError as fault:
        return ExampleResult(loaded.id, example.name, fault.what)
    return ExampleResult(loaded.id, example.name, _compare(example, finding, titles), finding)


def _compare(example: Example, finding: Finding, titles: list[str]) -> str:
    if example.message is not None and example.message.split() != finding.message.split():
        return f"the message reads: {finding.message}"
    if example.fix is not None and titles[:1] != [example.fix]:
        return f"the first fix is {titles[0]!r}" if titles else "no fix is offered"
    return ""
