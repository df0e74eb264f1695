"""The loop on real jobs: groups that only work together, interruption and resumption, nothing to do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
def test_a_pair_that_only_works_together_is_kept(tmp_path: Path, pack: Path) -> None:
    command = [*_optimize(tmp_path, pack), "--", sys.executable, str(SCRIPT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    ladder = json.loads(done.stdout)
    assert ladder["outcome"] == "faster"
    kept = ladder["rungs"][-1]
    assert set(kept["rules"]) == {"kernels/first", "batching/second"}
    assert kept["ratio_to_first"] > 1.5
    assert not ladder["dropped"]
    (run,) = (tmp_path / "runs").glob("at-*")
    verdict = json.loads((run / kept["verdict"]).read_text())
    assert ladder["rungs"][0]["step_ms"] == verdict["arms"][0]["step_ms"]  # timed in the same blocks
    journal = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    starts = [entry for entry in journal if entry["event"] == "start"]
    assert all(entry["wall_s"] > 0 for entry in starts)
    purposes = [entry["purpose"] for entry in starts]
    # Equal to the last bit, so the unchanged job is not started again for its noise.
    assert purposes.count("parity") == 2 and purposes.count("warm") == 0 and purposes[-1] == "look"


@pytest.mark.job
def test_a_killed_loop_resumes_without_repeating_a_finished_start(tmp_path: Path, pack: Path) -> None:
    command = [*_optimize(tmp_path, pack), "--", sys.executable, str(SCRIPT)]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
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
    resumed = subprocess.run(again, capture_output=True, text=True, timeout=400, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    assert json.loads(resumed.stdout)["outcome"] == "faster"
    for path, stamp in stamps.items():
        assert (run / path / "observation.json").stat().st_mtime_ns == stamp


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
    assert f"autotune optimize --resume {run.name} goes on [interrupted]" in told
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
