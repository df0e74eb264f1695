"""The built-in rules: they lint, their examples hold, their pages are fresh, and they load fast."""

from __future__ import annotations

from pathlib import Path

from autotune.data import data_dir
from autotune.facts.catalogue import catalogue as fact_catalogue
from autotune.facts.fact import Fact
from autotune.rules.examples import run_examples
from autotune.rules.lint import lint
from autotune.rules.load import RuleSet
from autotune.rules.pages import facts_page, rules_page
from autotune.rules.schema import FILE_NAME, schema_text

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_no_lint_problem(catalogue: dict[str, Fact]) -> None:
    report = lint([data_dir("rules")], catalogue=catalogue)
    assert report.rules.rules
    assert [str(problem) for problem in report.errors] == []


def test_every_example_holds(built_in: RuleSet, catalogue: dict[str, Fact]) -> None:
    results = run_examples(built_in.rules, catalogue)
    assert len(results) >= 3 * len(built_in.rules)
    assert [f"{r.rule}: {r.example}: {r.fault}" for r in results if r.fault] == []


def test_messages_of_examples_have_no_holes(built_in: RuleSet, catalogue: dict[str, Fact]) -> None:
    """A rule that fires on the facts of its examples must be able to say what it means with them."""
    for result in run_examples(built_in.rules, catalogue):
        if result.finding is not None:
            words = f" {result.finding.message} "
            assert " unknown " not in words.replace("unknown without traces", ""), (result.rule, words)
            assert "  " not in result.finding.message, result.rule


def test_generated_files_are_fresh(built_in: RuleSet) -> None:
    assert (data_dir("rules") / FILE_NAME).read_text() == schema_text(), "run: autotune rules schema"
    assert (DOCS / "rules.md").read_text() == rules_page(built_in.rules), "run: autotune rules pages docs"
    assert (DOCS / "facts.md").read_text() == facts_page(fact_catalogue(), built_in.rules)
