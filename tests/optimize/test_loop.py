"""The loop on real jobs: groups that only work together, interruption and resumption, the user's files."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from autotune.records.verdict import Verdict
from autotune.store import read_record
from autotune.verify.verdict import recompute

SCRIPT = Path(__file__).parent.parent / "scripts" / "sleepy_loop.py"
PACK = {
    "kernels/first.yaml": """
id: kernels/first
title: The first half of a pair
severity: medium
confidence: high
when:
  all:
    - run.is_training
    - run.step_ms >= 30
evidence: [run.step_ms]
gain: {ratio: "1.1", basis: planted}
message: Alone it makes the job slower.
caution: Only of use with the second half.
fix:
  - surface: env-var
    title: Set FIRST
    predicts: {kernels.linear_attention: fast}
    steps:
      - {action: set_env, name: FIRST, value: "1"}
parity: bitwise
together_with: [batching/second]
examples:
  - {name: slow steps, facts: {run.is_training: true, run.step_ms: 50.0}, expect: match}
  - {name: quick steps, facts: {run.is_training: true, run.step_ms: 5.0}, expect: no-match}
""",
    "batching/second.yaml": """
id: batching/second
title: The second half of a pair
severity: medium
confidence: high
when:
  all:
    - run.is_training
    - run.step_ms >= 30
evidence: [run.step_ms]
gain: {ratio: "2.5", basis: planted}
message: Alone it is refused.
caution: Only of use with the first half.
fix:
  - surface: env-var
    title: Set SECOND
    requires: ['kernels.linear_attention == "fast"']
    steps:
      - {action: set_env, name: SECOND, value: "1"}
parity: bitwise
after: [kernels/first]
together_with: [kernels/first]
examples:
  - {name: slow steps, facts: {run.is_training: true, run.step_ms: 50.0}, expect: match}
  - {name: quick steps, facts: {run.is_training: true, run.step_ms: 5.0}, expect: no-match}
""",
}


JOB = """
import os, pathlib, shutil, time, torch
torch.manual_seed(0)
here = pathlib.Path(__file__).parent
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = sorted((here / "ckpt").glob("step-*"))
model.load_state_dict(torch.load(kept[-1] / "model.pt"))
first, second = "FIRST" in os.environ, "SECOND" in os.environ
pause = 0.015 if first and second else 0.08 if first else 0.05
data = torch.utils.data.TensorDataset(torch.randn(4000, 8), torch.randn(4000, 1))
try:
    for i, (x, y) in enumerate(torch.utils.data.DataLoader(data, batch_size=4)):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        time.sleep(pause)
        optimizer.step()
        optimizer.zero_grad()
        with open(here / "metrics.jsonl", "a") as log:
            log.write("{}\\n")
        if i % 4 == 3:
            folder = here / "ckpt" / f"step-9{i:03d}"
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(model.state_dict(), folder / "model.pt")
            for old in sorted((here / "ckpt").glob("step-*"))[:-2]:
                shutil.rmtree(old)
finally:
    torch.save(model.state_dict(), here / "model.pt")
    (here / "done.txt").write_text("done")
"""


def _hashes(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        found[str(path.relative_to(folder))] = content
    return found


def _project(tmp_path: Path) -> Path:
    """A job that saves, rotates and resumes, with what its earlier runs left."""
    project = tmp_path / "project"
    (project / "ckpt").mkdir(parents=True)
    for name in ("step-0001", "step-0002", "step-0003"):
        (project / "ckpt" / name).mkdir()
        torch.save(torch.nn.Linear(8, 1).state_dict(), project / "ckpt" / name / "model.pt")
    (project / "train.py").write_text(JOB)
    (project / "model.pt").write_bytes(b"the real model")
    (project / "metrics.jsonl").write_text("{}\n")
    return project


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    for name, text in PACK.items():
        path = tmp_path / "pack" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "pack"


def _optimize(tmp_path: Path, pack: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "autotune", "optimize", "--json", "--steps", "8",
        "--runs-dir", str(tmp_path / "runs"), "--rules", str(pack),
        "--select", "kernels/first", "--select", "batching/second",
        *more,
    ]  # fmt: skip


def _labels(run: Path) -> set[str]:
    return {str(p.parent.relative_to(run)) for p in run.glob("trials/**/observation.json")}


@pytest.mark.job
def test_a_pair_that_only_works_together_is_kept_by_a_loop_that_was_killed(
    tmp_path: Path, pack: Path
) -> None:
    """It resumes without repeating a finished start; nothing of the user's changes, though the job saves."""
    project = _project(tmp_path)
    before = _hashes(project)
    command = [*_optimize(tmp_path, pack), "--", sys.executable, "train.py"]
    process = subprocess.Popen(
        command, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 300
    run = None
    while time.monotonic() < deadline and process.poll() is None:
        runs = list((tmp_path / "runs").glob("at-*"))
        if runs and len(_labels(runs[0])) >= 2:
            run = runs[0]
            break
        time.sleep(0.2)
    assert run is not None, "the loop ended before two starts were finished"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    stamps = {p: (run / p / "observation.json").stat().st_mtime_ns for p in _labels(run)}
    again = _optimize(tmp_path, pack, "--resume", run.name)
    done = subprocess.run(again, capture_output=True, text=True, timeout=400, cwd=project)
    assert done.returncode == 0, done.stderr[-2000:]
    for path, stamp in stamps.items():
        assert (run / path / "observation.json").stat().st_mtime_ns == stamp
    ladder = json.loads(done.stdout)
    assert ladder["outcome"] == "faster" and ladder["trials"] == 1
    assert _hashes(project) == before
    kept = ladder["rungs"][-1]
    assert set(kept["rules"]) == {"kernels/first", "batching/second"}
    assert kept["ratio_to_first"] > 1.5
    assert not ladder["dropped"]
    verdict = read_record(run / kept["verdict"], Verdict)
    assert ladder["rungs"][0]["step_ms"] == verdict.arms[0].step_ms  # timed in the same blocks
    assert verdict.parity.used == "bitwise" and len(verdict.parity.steps) == 8
    assert recompute(verdict) == verdict
    journal = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    starts = [entry for entry in journal if entry["event"] == "start"]
    used_again = [entry["label"] for entry in starts if entry["wall_s"] == 0]
    assert len(used_again) == len(stamps)
    # Equal to the last bit, so the unchanged job is not started again for its noise.
    purposes = {entry["label"]: entry["purpose"] for entry in starts}
    counts = list(purposes.values())
    assert counts.count("parity") == 2 and counts.count("warm") == 0 and counts[-1] == "look"


@pytest.mark.job
@pytest.mark.full
def test_ctrl_c_says_how_to_go_on(tmp_path: Path, pack: Path) -> None:
    command = [*_optimize(tmp_path, pack), "--", sys.executable, str(SCRIPT)]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        if list((tmp_path / "runs").glob("at-*/trials")):
            break
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    answer, told = process.communicate(timeout=100)
    assert process.returncode == 130
    (run,) = (tmp_path / "runs").glob("at-*")
    assert f"autotune optimize --resume {run.name} " in told and "goes on [interrupted]" in told
    assert f"--runs-dir {tmp_path / 'runs'}" in told  # without it the run would not be found
    assert json.loads(answer)["error"]["code"] == "interrupted"


@pytest.mark.job
@pytest.mark.full
def test_a_package_that_cannot_be_had_makes_room_for_the_way_behind_it(tmp_path: Path) -> None:
    text = (
        PACK["kernels/first.yaml"].replace("kernels/first", "kernels/only").replace("Set FIRST", "Set BOTH")
    )
    text = text.replace("together_with: [batching/second]\n", "").replace('ratio: "1.1"', 'ratio: "3"')
    text = text.replace(
        "fix:\n",
        "fix:\n  - surface: package\n    title: Install what nobody has\n    steps:\n"
        "      - {action: install, packages: [nobody-has-this]}\n",
    ).replace(
        'name: FIRST, value: "1"}\n',
        'name: FIRST, value: "1"}\n      - {action: set_env, name: SECOND, value: "1"}\n',
    )
    rule = tmp_path / "pack" / "kernels" / "only.yaml"
    rule.parent.mkdir(parents=True)
    rule.write_text(text)
    (tmp_path / "wheels").mkdir()
    command = [
        sys.executable, "-m", "autotune", "optimize", "--json", "--steps", "8",
        "--runs-dir", str(tmp_path / "runs"), "--rules", str(tmp_path / "pack"), "--select", "kernels/only",
        "--wheelhouse", str(tmp_path / "wheels"), "--", sys.executable, str(SCRIPT),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    ladder = json.loads(done.stdout)
    assert ladder["outcome"] == "faster" and ladder["rungs"][-1]["rules"] == ["kernels/only"]
    run = next((tmp_path / "runs").glob("at-*"))
    assert "nobody-has-this" in (run / "journal.jsonl").read_text()


@pytest.mark.job
@pytest.mark.full
def test_a_change_that_another_one_stood_against_has_its_turn_when_that_one_is_dropped(
    tmp_path: Path,
) -> None:
    alone = PACK["kernels/first.yaml"].replace("together_with: [batching/second]\n", "")
    slower = alone.replace("kernels/first", "kernels/slower").replace('"1.1"', '"3"')
    both = alone.replace("kernels/first", "kernels/both").replace('"1.1"', '"2.5"').replace(
        'name: FIRST, value: "1"}\n',
        'name: FIRST, value: "2"}\n      - {action: set_env, name: SECOND, value: "1"}\n',
    )  # fmt: skip
    for name, text in (("slower", slower), ("both", both)):
        rule = tmp_path / "pack" / "kernels" / f"{name}.yaml"
        rule.parent.mkdir(parents=True, exist_ok=True)
        rule.write_text(text)
    command = [
        sys.executable, "-m", "autotune", "optimize", "--json", "--steps", "8",
        "--runs-dir", str(tmp_path / "runs"), "--rules", str(tmp_path / "pack"),
        "--select", "kernels/slower", "--select", "kernels/both", "--", sys.executable, str(SCRIPT),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    ladder = json.loads(done.stdout)
    assert ladder["rungs"][-1]["rules"] == ["kernels/both"]
    assert [entry["rules"] for entry in ladder["dropped"]] == [["kernels/slower"]]


@pytest.mark.job
@pytest.mark.full
def test_a_member_that_breaks_training_is_left_behind_and_the_others_are_kept(
    tmp_path: Path, pack: Path
) -> None:
    third = PACK["batching/second.yaml"].replace("batching/second", "batching/third")
    third = third.replace("name: SECOND", "name: THIRD").replace(
        "after: [kernels/first]", "after: [kernels/first, batching/second]"
    )
    (pack / "batching" / "third.yaml").write_text(third)
    project = _project(tmp_path)
    job = JOB.replace("lr=0.01", 'lr=0.5 if "THIRD" in os.environ else 0.01')
    (project / "train.py").write_text(job)
    command = [*_optimize(tmp_path, pack, "--select", "batching/third"), "--", sys.executable, "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, cwd=project)
    assert done.returncode == 0, done.stderr[-2000:]
    ladder = json.loads(done.stdout)
    assert set(ladder["rungs"][-1]["rules"]) == {"kernels/first", "batching/second"}
    assert [entry["rules"] for entry in ladder["dropped"]] == [["batching/third"]]
    assert ladder["trials"] == 2
