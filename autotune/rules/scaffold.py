"""A new rule file to fill in: it loads and lints, and its examples show where to begin."""

from __future__ import annotations

import re

from autotune.errors import InputError
from autotune.records.facts import FactSheet
from autotune.rules.model import RULE_ID
from autotune.rules.parse import Catalogue

_DEFAULT_FACT = "data.loader_wait_frac"


def new_rule(rule_id: str, catalogue: Catalogue, sheet: FactSheet | None = None) -> str:
    """Text of a new rule. With `sheet` the match example holds that run's values of the rule's group.

    Raises InputError for an id that is not category/kebab-name.
    """
    if not re.match(RULE_ID, rule_id):
        raise InputError(
            f"'{rule_id}' is no rule id",
            hint="write category/kebab-name, e.g. data/slow-images",
            code="rule-id",
        )
    category = rule_id.split("/", 1)[0]
    known = _known_facts(category, catalogue, sheet)
    fact = next(iter(known), None) or _first_share(category, catalogue)
    condition, yes, no = _condition(fact, catalogue, known.get(fact))
    example = {**known, fact: yes}
    facts = "\n".join(f"      {name}: {_yaml(value)}" for name, value in example.items())
    return f"""\
# yaml-language-server: $schema=../{"rule.schema.json"}
# What each key means: docs/writing-rules.md. `autotune facts` lists what a condition can use.
id: {rule_id}
title: Say in one line what is wrong
severity: low
confidence: low
when:
  all:
    # one comparison a line; a fact that was not collected makes the rule undecided, never wrong
    - {condition}
  unless:
    # name what looks the same and is fine, so that the rule stays silent there
    - not run.is_training
evidence:
  - {fact}
gain:
  step_time_saved_frac: "0.02"
  basis: say why no more than this share of the step can vanish
message: |
  Say what happens and why it costs time. The value is {{{{ {fact} }}}}.
caution: |
  Say what can go wrong when this is changed.
fix:
  - surface: call-site
    title: Say what to change
    applicability: advice
references: []
examples:
  - name: it fires
    facts:
{facts}
    expect: match
  - name: it stays silent
    facts: {{{fact}: {_yaml(no)}}}
    expect: no-match
  - name: nothing is trained
    facts: {{{fact}: {_yaml(yes)}, run.is_training: false}}
    expect: no-match
  - name: the fact is missing
    facts: {{}}
    expect: unknown
"""


def _known_facts(category: str, catalogue: Catalogue, sheet: FactSheet | None) -> dict[str, object]:
    if sheet is None:
        return {}
    return {
        name: fact.value
        for name, fact in sheet.facts.items()
        if fact.state == "value" and name in catalogue and name.split(".", 1)[0] == category
    }


def _first_share(category: str, catalogue: Catalogue) -> str:
    own = [entry for name, entry in catalogue.items() if name.split(".", 1)[0] == category]
    shares = [entry.name for entry in own if entry.unit == "frac"]
    return (shares or [entry.name for entry in own] or [_DEFAULT_FACT])[0]


def _condition(fact: str, catalogue: Catalogue, value: object) -> tuple[str, object, object]:
    """A condition on the fact, a value that meets it and one that does not."""
    entry = catalogue[fact]
    if entry.type == "bool":
        wanted = value if isinstance(value, bool) else True
        return (fact if wanted else f"not {fact}"), wanted, not wanted
    if entry.type == "list":
        return f"{fact} != []", (value if isinstance(value, list) and value else ["something"]), []
    if entry.type == "str":
        word = value if isinstance(value, str) else (entry.choices[0] if entry.choices else "something")
        other = next((choice for choice in entry.choices if choice != word), "something else")
        return f'{fact} == "{word}"', word, other
    number = value if isinstance(value, int | float) else (0.2 if entry.unit == "frac" else 10)
    return f"{fact} >= {number:g}", number, number - 1 if entry.unit != "frac" else min(number, 1) / 2 - 0.001


def _yaml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_yaml(item) for item in value) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)
