"""Real jobs, edited and run: packing leaves every loss as it was, in every kind of loop."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from apply_sites import site_in
from findings_made import PACK, diagnosis, finding, fix, observation
from findings_made import step as fix_step

from autotune.apply.job import materialise
from autotune.apply.plan import build_plan
from autotune.data import data_dir
from autotune.records.findings import Fix
from autotune.records.plan import PatchedJob
from autotune.records.sites import Site

pytestmark = pytest.mark.job
JOBS = Path(__file__).resolve().parents[1] / "scripts" / "apply"
TRAINER_STEP = fix_step(
    "insert_after",
    at="trainer_create",
    template="{target}.data_collator = autotune_packed_batches.flatten({target}.data_collator)\n"
    "autotune_packed_batches.attend_per_example({target}.model)",
)
CREATE = "AutoModelForCausalLM.from_config"
LOADER = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(JOBS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def run(job: PatchedJob) -> list[str]:
    env = {k: v for k, v in {**os.environ, **job.env}.items() if v is not None}
    env |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    for _ in range(2):
        done = subprocess.run(job.command, cwd=job.cwd, env=env, capture_output=True, text=True, timeout=120)
        # torch may abort a gloo rank while the interpreter ends, after its last step: not what is tested here
        if "terminate called without an active exception" not in done.stderr:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def steps(lines: list[str]) -> dict[str, list[tuple[float, int]]]:
    """Loop -> (loss, rows of the batch) of every step."""
    found: dict[str, list[tuple[float, int]]] = {}
    for line in lines:
        words = line.split()
        if len(words) == 3 and words[2].isdigit():
            found.setdefault(words[0], []).append((float(words[1]), int(words[2])))
    return found


def both_arms(
    project: Path, command: list[str], sites: list[Site], how: Fix
) -> tuple[PatchedJob, PatchedJob]:
    seen = observation(command, project, sites)
    found = finding("batching/padding-waste", how, parity="token-exact")
    plan = build_plan(diagnosis(found, packing__verdict="isolated"), seen)
    assert [g.reason for g in plan.groups] == [""]
    folder = project.parent / "runs" / "at-1"
    folder.mkdir(parents=True)
    return (
        materialise([], seen, run=folder, label="baseline"),
        materialise(plan.groups, seen, run=folder, label="patched"),
    )


def compare(baseline: PatchedJob, patched: PatchedJob, counts: dict[str, int]) -> None:
    before, after = steps(run(baseline)), steps(run(patched))
    assert {name: len(values) for name, values in before.items()} == counts
    assert before.keys() == after.keys()
    for name, values in before.items():
        losses = [loss for loss, _ in after[name]]
        assert [loss for loss, _ in values] == pytest.approx(losses, abs=1e-5), name
        assert all(rows > 1 for _, rows in values) and all(rows == 1 for _, rows in after[name])


def test_plain_loops(project: Path) -> None:
    script = project / "loops.py"
    sites = [
        site_in(script, "DataLoader", kind="loader", nth=0, parameters=LOADER, site_id="l0"),
        site_in(script, "DataLoader", kind="loader", nth=1, parameters=LOADER, site_id="l1"),
        site_in(
            script,
            "DataLoader",
            kind="loader",
            nth=2,
            parameters=LOADER,
            star={"collate_fn": "collate"},
            site_id="l2",
        ),
        *(site_in(script, "from_config", kind="model_create", callee=CREATE, nth=n) for n in range(3)),
    ]
    before = {p: p.read_bytes() for p in project.iterdir()}
    baseline, patched = both_arms(project, [sys.executable, "loops.py", "--steps", "6"], sites, PACK)
    compare(baseline, patched, {"star": 6, "named": 6, "own_loss": 6})
    assert {p: p.read_bytes() for p in project.iterdir()} == before


def test_two_ranks_fsdp2(project: Path) -> None:
    script = project / "sharded.py"
    sites = [
        site_in(script, "DataLoader", kind="loader", parameters=LOADER),
        site_in(script, "from_config", kind="model_create", callee=CREATE),
    ]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    baseline, patched = both_arms(project, [*command, str(script)], sites, PACK)
    compare(baseline, patched, {"rank0": 4, "rank1": 4})


@pytest.mark.full
def test_trainer(project: Path) -> None:
    script = project / "trainer.py"
    sites = [
        site_in(script, "Log", kind="trainer_create", callee="trainer.Log"),
        site_in(script, "TrainingArguments", kind="carrier", callee="transformers.TrainingArguments"),
    ]
    carrier_step = fix_step("set_keyword", at="carrier", keywords={"optim": '"adamw_torch_fused"'})
    how = fix(PACK.steps[0], TRAINER_STEP, carrier_step, surface="shim")
    baseline, patched = both_arms(project, [sys.executable, "trainer.py"], sites, how)
    compare(baseline, patched, {"trainer": 4})


@pytest.mark.full
def test_trl(project: Path) -> None:
    sites = [site_in(project / "sft.py", "Log", kind="trainer_create", callee="sft.Log")]
    how = fix(PACK.steps[0], TRAINER_STEP, surface="shim")
    baseline, patched = both_arms(project, [sys.executable, "sft.py"], sites, how)
    compare(baseline, patched, {"sft": 4})


@pytest.mark.parametrize("rule", ["shape-churn", "rank-imbalance", "outlier-lengths"])
def test_rules_offer_rows_of_a_token_budget_with_their_own_tier(rule: str) -> None:
    way = _token_rows(rule)
    assert (way["applicability"], way["parity"]) == ("review", "statistical")
    assert way["steps"] == _token_rows()["steps"]


@pytest.mark.full  # how ranks share the rows: test_token_rows.py
def test_two_ranks_with_rows_of_a_token_budget(project: Path) -> None:
    script = project / "sharded.py"
    sites = [
        site_in(script, "DataLoader", kind="loader", parameters=LOADER),
        site_in(script, "from_config", kind="model_create", callee=CREATE),
    ]
    way = _token_rows()
    way["steps"][0]["arguments"] = {"row_tokens": 128}
    how = fix(*(fix_step(**s) for s in way["steps"]), surface="shim", parity="statistical")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    seen = observation([*command, str(script)], project, sites)
    found = diagnosis(finding("batching/shape-churn", how, parity="token-exact"), packing__verdict="isolated")
    plan = build_plan(found, seen)
    assert [(g.reason, g.parity) for g in plan.groups] == [("", "statistical")]
    job = materialise(plan.groups, seen, run=project.parent / "runs" / "at-1", label="patched")
    assert job.parity == "statistical"
    shown = steps(run(job))
    assert {len(v) for v in shown.values()} == {3}, (
        "518 tokens fill 5 rows of 128; two ranks need an even number"
    )
    assert all(rows == 1 for values in shown.values() for _, rows in values)
    assert shown["rank0"] != shown["rank1"]


def _token_rows(rule: str = "shape-churn") -> Any:
    ways = yaml.safe_load((data_dir("rules") / "batching" / f"{rule}.yaml").read_text())["fix"]
    return next(way for way in ways if any("token_rows" in str(step) for step in way.get("steps", [])))
