"""Publicly diagnosed jobs: the facts their reports print, and the verdict a correct tool gives.

One file per report under cases/. `fires` must be found, `first` before all others, `silent` must not be found
(a name that ends with / stands for the whole group), `undecided` must be undecided, `no_finding` allows none.
Reports whose numbers do not decide anything are left out: R10 (how losses are averaged, not a slowness).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from rule_sheets import sheet_of

from autotune.facts.fact import Fact
from autotune.rules.load import RuleSet
from autotune.rules.match import match

CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path, built_in: RuleSet, catalogue: dict[str, Fact]) -> None:
    case: dict[str, Any] = yaml.safe_load(path.read_text())
    assert set(case["facts"]) <= set(catalogue)
    answer = match(built_in.rules, sheet_of(case["facts"]), catalogue=catalogue)
    found = {finding.rule: finding for finding in answer.findings}
    for rule in case.get("fires", []):
        assert rule in found
    if "first" in case:
        assert answer.findings[0].rule == case["first"]
    for name in case.get("silent", []):
        assert not [rule for rule in found if rule == name or (name.endswith("/") and rule.startswith(name))]
    for rule in case.get("undecided", []):
        item = next(entry for entry in answer.undecided if entry.rule == rule)
        assert item.missing
        assert item.decided_by
    for rule, severity in case.get("severity", {}).items():
        assert found[rule].severity == severity
    for rule, cause in case.get("explained", {}).items():
        assert found[rule].explained_by == cause
    for words in case.get("fixes_without", []):
        assert not [fix.title for finding in found.values() for fix in finding.fixes if words in fix.title]
    if case.get("no_finding"):
        assert found == {}
    # whatever else is found is at most worth knowing, or belongs to what the report says
    extra = {rule for rule, finding in found.items() if finding.severity != "info"} - set(
        case.get("fires", [])
    )
    assert extra <= set(case.get("also", []))


def test_enough_cases() -> None:
    assert len(CASES) >= 22
