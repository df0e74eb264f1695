"""Findings and observations as the rules and the observer would give them, made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.records.facts import FactScalar, FactValue
from autotune.records.findings import CodeSite, Diagnosis, Finding, Fix, FixStep, Gain
from autotune.records.observation import EnvironmentRecord, Observation, RankObservation
from autotune.records.sites import Site


def observation(
    command: list[str], cwd: Path, sites: list[Site] | None = None, interpreter: str = ""
) -> Observation:
    rank = RankObservation(
        rank=0,
        world_size=1,
        environment=EnvironmentRecord(python="3.11", torch="2.13", interpreter=interpreter),
        status="stopped",
    )
    return Observation(
        mode="profile",
        command=command,
        cwd=str(cwd),
        exit_code=0,
        wall_s=1.0,
        ranks=[rank],
        expected_ranks=1,
        sites=sites or [],
    )


def step(action: str, **arguments: Any) -> FixStep:
    return FixStep(action=action, arguments=arguments)


def fix(*steps: FixStep, surface: Any = "call-site", title: str = "a fix", **rest: Any) -> Fix:
    return Fix(surface=surface, title=title, steps=list(steps), **rest)


def finding(
    rule: str, *fixes: Fix, ratio: float | None = 1.5, sites: list[Site] | None = None, **rest: Any
) -> Finding:
    return Finding(
        rule=rule,
        title=rule,
        severity=rest.pop("severity", "high"),
        confidence="high",
        message="",
        evidence=[],
        gain=Gain(ratio_upper=ratio),
        fixes=list(fixes),
        sites=[CodeSite(file=s.file, line=s.line) for s in sites or []],
        parity=rest.pop("parity", "numeric"),
        **rest,
    )


def diagnosis(*findings: Finding, **facts: FactScalar) -> Diagnosis:
    named = {name.replace("__", "."): FactValue(state="value", value=value) for name, value in facts.items()}
    return Diagnosis(run="r", verdict="v", facts=named, findings=list(findings), undecided=[], passed=[])


PACK = fix(
    step("use_shim", template="shims/packed_batches.py.j2", module="autotune_packed_batches"),
    step(
        "wrap_argument",
        at="loader",
        argument="collate_fn",
        template="autotune_packed_batches.flatten({original})",
        missing="autotune_packed_batches.flatten(None)",
    ),
    step("insert_after", at="model_create", template="autotune_packed_batches.attend_per_example({target})"),
    surface="shim",
    title="one row per batch",
    requires=['packing.verdict == "isolated"'],
    predicts={"packing.packed": True},
)
