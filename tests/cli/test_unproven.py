"""What `apply` says of changes that no trial has proven, on run folders as trials leave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.apply.job import JOB_FILE
from autotune.cli.apply import _left_out, _say_left_out, _say_proof
from autotune.cli.main import cli
from autotune.console import Screen
from autotune.optimize.proof import proof_of
from autotune.records.ladder import Ladder, Rung
from autotune.records.plan import Advice, Member, PatchedJob, Plan, PlanGroup
from autotune.records.verdict import ArmRecord, ParityResult, Settings, Verdict
from autotune.store import write_record

EAGER, CACHE = "attention/eager", "kernels/cache-in-training"


def _job(run: Path, label: str, rules: list[str], fingerprint: str, **more: str) -> PatchedJob:
    tree = f"{run}/patched/{label}/tree"
    job = PatchedJob(
        label=label, groups=rules, rules=rules, command=["python", f"{tree}/x.py"], cwd=f"{tree}/home",
        original_command=["python"], original_cwd="/home", tree=tree, fingerprint=fingerprint, env=dict(more),
    )  # fmt: skip
    write_record(run / "patched" / label / JOB_FILE, job)
    return job


def _measured(run: Path, name: str, job: PatchedJob, outcome: str) -> None:
    arms = [
        ArmRecord(name="as it is", command=["python"], cwd="/x"),
        ArmRecord(
            name=job.rules[-1], command=job.command, cwd=job.cwd, fingerprint=job.fingerprint,
            environment=job.env,
        ),
    ]  # fmt: skip
    settings = Settings(
        tier="numeric", min_pairs=3, max_pairs=8, steps=12, warmup_steps=3, parity_steps=20, seed=0
    )
    parity = ParityResult(tier="numeric", used="numeric", outcome="equal", sentence="equal")
    verdict = Verdict(
        outcome=outcome, sentence=f"it is {outcome}", parity=parity, arms=arms, trials=[], settings=settings  # type: ignore[arg-type]
    )  # fmt: skip
    write_record(run / "trials" / name / "verdict.json", verdict)


def _plan(run: Path) -> Plan:
    groups = [
        PlanGroup(
            id=rule, rules=[rule], admissible=True,
            members=[
                Member(
                    rule=rule, title=rule, fix="f", surface="call-site", applicability="safe", steps=[],
                    places=[f"x.py:{line}"],
                )
            ],
        )
        for line, rule in enumerate((EAGER, CACHE), 4)
    ]  # fmt: skip
    return Plan(run=run.name, groups=groups)


def test_a_change_that_no_trial_contained_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = _job(tmp_path, "apply", [EAGER, CACHE], "both")
    before = proof_of(tmp_path, shown, _plan(tmp_path))
    assert not before.proven and before.untried == [EAGER, CACHE] and "has measured any" in before.sentence
    _measured(tmp_path, "001", _job(tmp_path, "trial-001-1", [EAGER], "one"), "faster")
    proof = proof_of(tmp_path, shown, _plan(tmp_path))
    assert not proof.proven and proof.untried == [CACHE]
    with cli.make_context("autotune", ["apply"], obj={"screen": Screen()}):
        _say_proof(proof, _plan(tmp_path), tmp_path)
    said = " ".join(capsys.readouterr().out.split())
    assert f"not proven: no trial of this run contained {CACHE}" in said
    assert f"in no trial: {CACHE} at x.py:5" in said and f"in no trial: {EAGER}" not in said
    _measured(tmp_path, "002", _job(tmp_path, "trial-002-1", [CACHE], "other"), "faster")
    apart = proof_of(tmp_path, shown, _plan(tmp_path))
    assert not apart.proven and apart.untried == [] and "no trial was of all of them" in apart.sentence


def test_a_finding_that_no_change_mends_is_told_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    advice = [
        Advice(rule="batching/b", title="t", reasons=["shim (Pack): x.py:3: no name", "advice for a person"]),
        Advice(rule="data/d", title="t", reasons=["excluded"]),
        Advice(rule="data/e", title="t", reasons=["not selected"]),
    ]
    with cli.make_context("autotune", ["apply"], obj={"screen": Screen()}):
        _say_left_out(_left_out(Plan(run="r", groups=[], advice=advice)))
    said = " ".join(capsys.readouterr().out.split())
    assert said == "left out: batching/b: shim (Pack): x.py:3: no name | advice for a person"
    assert _left_out(None) == []  # the proven changes of optimize: nothing was planned here


@pytest.mark.parametrize("outcome", ["faster", "undecided", "slower"])
def test_the_verdict_of_exactly_these_changes_decides(tmp_path: Path, outcome: str) -> None:
    shown = _job(tmp_path, "apply", [EAGER, CACHE], "both", OMP_NUM_THREADS="1")
    _measured(tmp_path, "verify", _job(tmp_path, "verify", shown.rules, "both", OMP_NUM_THREADS="1"), outcome)
    proof = proof_of(tmp_path, shown, _plan(tmp_path))
    assert proof.proven is (outcome == "faster") and proof.untried == []
    assert proof.sentence == f"{'' if proof.proven else 'not '}proven: it is {outcome}"
    other = _job(tmp_path, "apply", [EAGER, CACHE], "both", OMP_NUM_THREADS="8")
    assert not proof_of(tmp_path, other, _plan(tmp_path)).proven, "a variable differs"


@pytest.mark.parametrize("outcome", ["faster", "nothing-kept"])
def test_a_kept_job_is_proven_when_its_ladder_says_so(tmp_path: Path, outcome: str) -> None:
    rungs = [Rung(name="as it was", ratio_to_first=1.0), Rung(name="eager", ratio_to_first=2.5)]
    ladder = Ladder(run="r", state="finished", rungs=rungs, outcome=outcome)  # type: ignore[arg-type]
    write_record(tmp_path / "ladder.json", ladder)
    proof = proof_of(tmp_path, _job(tmp_path, "kept", [EAGER], "k"), None)
    assert proof.proven is (outcome == "faster") and ("2.50x faster" in proof.sentence) is proof.proven


@pytest.mark.parametrize(("later", "told"), [("undecided", True), ("faster", False)])
def test_a_later_comparison_that_showed_nothing_is_told_beside_the_proof(
    tmp_path: Path, later: str, told: bool
) -> None:
    rungs = [Rung(name="as it was", ratio_to_first=1.0), Rung(name="eager", ratio_to_first=2.5)]
    write_record(tmp_path / "ladder.json", Ladder(run="r", state="finished", rungs=rungs, outcome="faster"))
    kept = _job(tmp_path, "kept", [EAGER], "k")
    _measured(tmp_path, "verify", kept, later)
    proof = proof_of(tmp_path, kept, None)
    assert proof.proven and ("did not show it: it is undecided" in proof.sentence) is told
