"""Faults found by using it: each leaves one clear line, and nothing that was recorded is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotune.apply.plan import Choice
from autotune.errors import InputError
from autotune.optimize.patched import plan_of
from autotune.store import find_run

STEPS = """
import os, sys, time, torch
model = torch.nn.Linear(8, 4); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(4, 8)).pow(2).mean().backward(); optimizer.step(); optimizer.zero_grad()
"""


def _analyze(tmp_path: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "job.py").write_text(STEPS + script)
    command = [
        sys.executable,
        "-m",
        "autotune",
        "analyze",
        "--quiet",
        *options,
        "--",
        sys.executable,
        "job.py",
    ]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)


@pytest.mark.job
def test_a_crash_after_some_steps_leads_the_report_and_is_one_line(tmp_path: Path) -> None:
    done = _analyze(
        tmp_path, "for i in range(40):\n    step()\n    if i == 4: raise ValueError('boom\\nsecond')\n"
    )
    assert done.returncode == 3
    lines = [line for line in done.stderr.splitlines() if line.startswith("autotune: ")]
    assert len(lines) == 1 and "boom" in lines[0] and "second" in lines[0]
    assert done.stdout.startswith("The job failed on rank 0 after 5 steps")
    # The loop has nothing to try in it, and that is no success.
    again = [sys.executable, "-m", "autotune", "optimize", "--quiet", "--resume", "latest"]
    done = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 3 and "boom" in done.stderr, done.stderr
    assert "No step could be timed: only 5 steps were seen" in " ".join(done.stdout.split())
    assert "Nothing is proven" in done.stdout


@pytest.mark.job
def test_a_job_whose_folder_vanishes_keeps_its_observation(tmp_path: Path) -> None:
    script = (
        "import tempfile\nd = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)\nfor i in range(200): step()\n"
    )
    done = _analyze(tmp_path, script)
    assert done.returncode == 0, done.stderr


@pytest.mark.job
@pytest.mark.full  # of a launch: tests/observe/test_launch.py
def test_one_ctrl_c_ends_a_job_that_ignores_it(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        STEPS
        + "from signal import *\nsignal(SIGINT, SIG_IGN); signal(SIGTERM, SIG_IGN)\n"
        + "for i in range(100000): step(); time.sleep(0.01)\n"
    )
    command = [
        sys.executable,
        "-m",
        "autotune",
        "analyze",
        "--quiet",
        "--steps",
        "9000",
        "--",
        sys.executable,
        "job.py",
    ]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("runs/*/launches/observe/raw/rank-00000/events.jsonl")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=90) == 130
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def test_the_latest_run_is_the_latest_with_a_diagnosis(tmp_path: Path) -> None:
    for name in ("at-20260101-000000-good", "at-20260102-000000-failed"):
        (tmp_path / name).mkdir()
    (tmp_path / "at-20260101-000000-good" / "diagnosis.json").write_text("{}")
    assert find_run(tmp_path, None).name == "at-20260101-000000-good"
    assert find_run(tmp_path, "failed").name == "at-20260102-000000-failed"
    with pytest.raises(InputError, match="no run"):
        find_run(tmp_path, "neither")
    with pytest.raises(InputError, match="no diagnosis: its job failed"):
        plan_of(tmp_path / "at-20260102-000000-failed", Choice())


@pytest.mark.job
def test_a_killed_run_is_listed_as_interrupted(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(STEPS + "for i in range(100000): step(); time.sleep(0.01)\n")
    words = ["analyze", "--quiet", "--steps", "9000", "--", sys.executable, "job.py"]
    process = subprocess.Popen(
        [sys.executable, "-m", "autotune", *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def listed() -> str:
        command = [sys.executable, "-m", "autotune", "runs"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    try:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("runs/*/launches/observe/raw/rank-00000/events.jsonl")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.2)
        assert "started" in listed()
    finally:
        process.kill()
        process.wait()
    assert "interrupted" in listed()
