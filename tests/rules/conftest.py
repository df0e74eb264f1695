"""Shared pieces of the rule tests: the fact catalogue and a rule made from a few lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.data import data_dir
from autotune.facts.catalogue import catalogue as fact_catalogue
from autotune.facts.fact import Fact
from autotune.rules.compile import LoadedRule, load_text
from autotune.rules.load import RuleSet, load_rules

SMALL = """\
id: {id}
title: A title
severity: {severity}
confidence: medium
when:
{when}
evidence: [data.padding_frac]
{more}message: A message.
"""


@pytest.fixture(scope="session")
def catalogue() -> dict[str, Fact]:
    return fact_catalogue()


@pytest.fixture(scope="session")
def built_in(catalogue: dict[str, Fact]) -> RuleSet:
    return load_rules([data_dir("rules")], catalogue=catalogue)


@pytest.fixture
def small_rule(catalogue: dict[str, Fact]) -> Callable[..., LoadedRule]:
    """A rule from its conditions, e.g. small_rule(all=["data.padding_frac > 0.1"])."""

    def make(
        rule_id: str = "data/small", *, severity: str = "medium", more: str = "", **when: list[str]
    ) -> LoadedRule:
        lines = "\n".join(
            f"  {key}:\n" + "\n".join(f"    - {line!r}" for line in conditions)
            for key, conditions in when.items()
        )
        text = SMALL.format(id=rule_id, severity=severity, when=lines, more=more + "\n" if more else "")
        loaded, problems = load_text(text, "small.yaml", catalogue=catalogue)
        assert loaded is not None, "\n".join(map(str, problems))
        return loaded

    return make


@pytest.fixture
def pack(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """A folder of rule files from a mapping of relative path to text."""

    def make(files: dict[str, str]) -> Path:
        folder = tmp_path / "pack"
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return folder

    return make
