"""Every fact a rule decides on is one that some collector of the tree puts into the sheet."""

from __future__ import annotations

import ast
from pathlib import Path

from autotune.facts import sheet as sheet_module
from autotune.facts.fact import Fact
from autotune.rules.expression import fact_names
from autotune.rules.load import RuleSet
from autotune.rules.pages import condition_nodes

FACTS = Path(sheet_module.__file__).parent
_SOURCES = [path for path in FACTS.rglob("*.py") if "catalog" not in path.parts]


def put_names() -> set[str]:
    """First arguments of `put` calls; names built from a loop variable count with every value it takes."""
    found: set[str] = set()
    for path in _SOURCES:
        tree = ast.parse(path.read_text())
        words = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        for node in ast.walk(tree):
            if not (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "put"
            ):
                continue
            first = node.args[0]
            if isinstance(first, ast.Constant):
                found.add(str(first.value))
            elif isinstance(first, ast.JoinedStr):  # f"{prefix}_reason"
                tail = "".join(str(part.value) for part in first.values if isinstance(part, ast.Constant))
                found |= {word + tail for word in words if "." in word}
            else:  # a loop over (fact, ...) pairs
                found |= {word for word in words if "." in word}
    return found


def test_a_collector_for_every_fact_of_every_rule(built_in: RuleSet, catalogue: dict[str, Fact]) -> None:
    put = put_names()
    assert len(put & set(catalogue)) > 150
    missing = {
        (loaded.id, name)
        for loaded in built_in.rules
        for node in condition_nodes(loaded)
        for name in fact_names(node)
        if name not in put
    }
    assert missing == set()


def test_at_least_eighty_rules(built_in: RuleSet) -> None:
    assert len(built_in.rules) >= 80
