"""Packages that have to be compiled: built where that is possible, else the shim that does without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from findings_made import finding, fix, step
from test_plan import SCRIPT, plan_for

from autotune.apply.plan import Choice
from autotune.data import data_dir
from autotune.facts import recipes
from autotune.records.facts import FactValue
from autotune.records.findings import Diagnosis, Fix


def ways(rule: str) -> list[Fix]:
    """The fixes of a built-in rule that have steps, without their conditions on facts."""
    loaded = yaml.safe_load((data_dir("rules") / f"{rule}.yaml").read_text())
    return [
        fix(
            *(step(**s) for s in way["steps"]),
            surface=way["surface"],
            title=way["title"],
            requires=way.get("requires", []),
            predicts=way.get("predicts", {}),
        )
        for way in loaded["fix"]
        if way.get("steps") and "mamba" not in way["title"]
    ]


def diagnosis_of(*, with_fla: bool, installed: bool = False) -> Diagnosis:
    findings = [finding("kernels/causal-conv-fallback", *ways("kernels/causal-conv-fallback"))]
    facts: dict[str, Any] = {"kernels.causal_conv": "fallback", "kernels.linear_attention": "fallback"}
    if with_fla:
        linear = ways("kernels/linear-attention-fallback")[1]
        together = ["kernels/causal-conv-fallback"]
        findings.append(finding("kernels/linear-attention-fallback", linear, together_with=together))
        findings[0] = findings[0].model_copy(update={"after": ["kernels/linear-attention-fallback"]})
    named = {name: FactValue(state="value", value=value) for name, value in facts.items()}
    absent = FactValue(state="not-applicable")
    named["env.flash_linear_attention"] = FactValue(state="value", value="0.6.0") if installed else absent
    return Diagnosis(run="r", verdict="v", facts=named, findings=findings, undecided=[], passed=[])


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "tools_here", lambda names=("nvcc",): frozenset())


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "tools_here", lambda names=("nvcc",): frozenset({"nvcc"}))


def members(plan: Any) -> dict[str, str]:
    return {m.rule.split("/")[1]: m.surface for g in plan.groups if g.admissible for m in g.members}


def test_with_a_compiler_the_package_is_built(script: Path, compiler: None) -> None:
    plan = plan_for(script, diagnosis_of(with_fla=True))
    assert members(plan) == {"linear-attention-fallback": "package", "causal-conv-fallback": "package"}


def test_without_one_the_kernel_of_the_other_package_is_used(script: Path, no_compiler: None) -> None:
    plan = plan_for(script, diagnosis_of(with_fla=True))
    assert members(plan) == {"linear-attention-fallback": "package", "causal-conv-fallback": "shim"}
    (group,) = plan.groups
    conv = next(m for m in group.members if m.rule == "kernels/causal-conv-fallback")
    assert any("nvcc was not found" in reason for reason in conv.passed_over)
    assert group.packages == ["flash-linear-attention"]
    assert group.predicted["kernels.causal_conv"].value == "fast"


def test_a_package_that_is_there_already_serves_too(script: Path, no_compiler: None) -> None:
    plan = plan_for(script, diagnosis_of(with_fla=False, installed=True))
    assert members(plan) == {"causal-conv-fallback": "shim"}


def test_nothing_is_done_where_neither_can_be_had(script: Path, no_compiler: None) -> None:
    plan = plan_for(script, diagnosis_of(with_fla=False))
    assert members(plan) == {}
    reasons = " ".join(r for a in plan.advice for r in a.reasons)
    assert "nvcc was not found" in reasons and "env.flash_linear_attention" in reasons


def test_a_folder_of_wheels_needs_no_compiler(script: Path, no_compiler: None) -> None:
    plan = plan_for(script, diagnosis_of(with_fla=False), choice=Choice(wheels=True))
    assert members(plan) == {"causal-conv-fallback": "package"}


def test_a_build_that_failed_makes_room_for_the_way_behind_it(script: Path, compiler: None) -> None:
    choice = Choice(failed=(("causal-conv1d", "causal-conv1d==1.7.0 cannot be installed: nvcc fatal"),))
    plan = plan_for(script, diagnosis_of(with_fla=True), choice=choice)
    assert members(plan) == {"linear-attention-fallback": "package", "causal-conv-fallback": "shim"}
    (group,) = plan.groups
    conv = next(m for m in group.members if m.rule == "kernels/causal-conv-fallback")
    assert any("nvcc fatal" in reason for reason in conv.passed_over)
