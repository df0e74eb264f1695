"""Rules that fired in real jobs and real traces: the recorded facts still make them fire, and only them.

The files under recorded/ come from bench/rule_firing/run.py, from jobs of the fault bench (keep.py), from a
job on an H200, and from tests/traces.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rule_sheets import sheet_of

from autotune.facts.fact import Fact
from autotune.rules.load import RuleSet
from autotune.rules.match import match

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))


def load(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text())
    return record


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_job(path: Path, built_in: RuleSet, catalogue: dict[str, Fact]) -> None:
    record = load(path)
    assert set(record["facts"]) <= set(catalogue)
    found = match(built_in.rules, sheet_of(record["facts"]), catalogue=catalogue).findings
    assert {finding.rule: finding.severity for finding in found} == record["findings"]


def test_jobs_that_are_in_order_have_no_finding() -> None:
    for path in RECORDED:
        if "in-order" in path.stem or "tuned" in path.stem:
            worse = {rule for rule, severity in load(path)["findings"].items() if severity != "info"}
            assert worse == set(), path.stem


def test_how_many_rules_have_fired() -> None:
    fired = {rule for path in RECORDED for rule in load(path)["findings"]}
    assert len(fired) >= 52, sorted(fired)
