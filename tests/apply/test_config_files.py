"""Configuration files in the formats of the programs that read them: each folder of tests/configs is a case.

`after.NAME` says what NAME becomes; cases without one must stay as they are, for the reason in case.json.
Every change is made through a plan, written beside the original, found as made already, and taken back.
"""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from findings_made import diagnosis, finding, fix, observation, step

from autotune.apply.deliver import deliver, revert
from autotune.apply.job import materialise
from autotune.apply.plan import build_plan
from autotune.records.plan import Plan

CASES = Path(__file__).resolve().parents[1] / "configs"
NAMES = sorted(p.name for p in CASES.iterdir() if (p / "case.json").is_file())


def plan_for(project: Path, case: dict[str, Any]) -> tuple[Plan, Any]:
    steps = [step("set_key", key=key, value=value) for key, value in case["settings"].items()]
    seen = observation(shlex.split(case["command"]), project)
    made = finding("test/rule", fix(*steps, surface="config"))
    return build_plan(diagnosis(made, packing__verdict="isolated"), seen), seen


@pytest.mark.parametrize("name", NAMES)
def test_configuration(name: str, tmp_path: Path) -> None:
    case = json.loads((CASES / name / "case.json").read_text(encoding="utf-8"))
    project = tmp_path / "project"
    shutil.copytree(CASES / name, project, ignore=shutil.ignore_patterns("case.json", "after.*"))
    before = {p.name: p.read_bytes() for p in project.iterdir()}
    plan, seen = plan_for(project, case)
    if "refused" in case:
        assert not any(g.admissible for g in plan.groups)
        reasons = [r for a in plan.advice for r in a.reasons] + [g.reason for g in plan.groups]
        assert any(case["refused"] in r for r in reasons), reasons
        return
    assert [g.reason for g in plan.groups if not g.admissible] == [] and plan.groups
    run = tmp_path / "runs" / "at-1"
    run.mkdir(parents=True)
    job = materialise(plan.groups, seen, run=run, label="patched")
    changed = {Path(f.path).name: Path(f.shadow).read_bytes() for f in job.files}
    expected = (CASES / name / f"after.{case['changes']}").read_bytes()
    assert changed == {case["changes"]: expected} and expected != before[case["changes"]]
    assert {p.name: p.read_bytes() for p in project.iterdir()} == before
    deliver(job, run=run, write=True)
    assert {p.name: p.read_bytes() for p in project.iterdir()} != before
    revert(run)
    assert {p.name: p.read_bytes() for p in project.iterdir()} == before
    (project / case["changes"]).write_bytes(expected)
    again, _ = plan_for(project, case)
    assert not any(g.admissible for g in again.groups), "the second time there is nothing to do"


def test_there_are_as_many_files_that_must_not_change() -> None:
    changing = [n for n in NAMES if "changes" in json.loads((CASES / n / "case.json").read_text())]
    assert len(NAMES) - len(changing) >= len(changing) >= 20
