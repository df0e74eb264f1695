"""Patched jobs as arms: what the last one has to show."""

from __future__ import annotations

from pathlib import Path

from autotune.analyze.diagnose import RuleSources
from autotune.optimize.arms import arms_of
from autotune.records.facts import FactValue
from autotune.records.plan import PatchedJob, PlanGroup


def job(label: str) -> PatchedJob:
    return PatchedJob.model_construct(
        label=label, command=["python", "train.py"], cwd=Path("/"), env={}, python_path=[], fingerprint="",
        fingerprint_files=[], user_roots=[], protected_roots=[],
    )  # fmt: skip


def group(name: str, **predicted: str) -> PlanGroup:
    facts = {
        key.replace("__", "."): FactValue(state="value", value=value, source="predicted")
        for key, value in predicted.items()
    }
    return PlanGroup(id=name, rules=[name], members=[], admissible=True, predicted=facts)


def test_the_last_arm_must_run_the_kernels_that_any_group_brings() -> None:
    kernels = group("kernels", kernels__linear_attention="fast", packing__verdict="isolated")
    convolution = group("convolution", kernels__causal_conv="fast")
    fused = group("optimizer", optimizer__fused="True")
    jobs = [(each, job(each.id)) for each in (kernels, convolution, fused)]
    arms = arms_of(job("now"), jobs, RuleSources())
    assert [arm.name for arm in arms] == ["as it is", "kernels", "convolution", "optimizer"]
    assert [arm.fused_roles for arm in arms] == [(), (), (), ("linear_attention", "causal_conv")]
    assert arms_of(job("now"), jobs[2:], RuleSources())[-1].fused_roles == ()
    assert [arm.name for arm in arms_of(job("now"), [], RuleSources())] == ["as it is"]
