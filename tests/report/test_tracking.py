"""Exports to trackers through their own clients, without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full


def _report(from_job: Path, option: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    words = ["report", str(from_job), option, "--json", "--experiment", "tried"]
    return subprocess.run(
        [sys.executable, "-m", "autotune", *words],
        cwd=cwd, capture_output=True, text=True, timeout=120, env={**os.environ, **env},
    )  # fmt: skip


def test_mlflow_gets_metrics_parameters_and_records(from_job: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    store = (tmp_path / "mlruns").as_uri()
    done = _report(from_job, "--mlflow", tmp_path, MLFLOW_TRACKING_URI=store, MLFLOW_ALLOW_FILE_STORE="true")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["written"]) == 1
    (metric,) = (tmp_path / "mlruns").glob("*/*/metrics/autotune.speedup")
    assert float(metric.read_text().split()[1]) == 2.0
    (kept,) = (tmp_path / "mlruns").glob("*/*/artifacts/autotune/diagnosis.json")
    assert kept.read_bytes() == (from_job / "diagnosis.json").read_bytes()
    (command,) = (tmp_path / "mlruns").glob("*/*/params/autotune.command")
    assert command.read_text() == "python src/train it.py"


def test_wandb_offline_keeps_the_run(from_job: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    done = _report(from_job, "--wandb", tmp_path, WANDB_MODE="offline", WANDB_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "in project tried" in json.loads(done.stdout)["written"][0]
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    (log,) = folder.glob("*.wandb")
    assert b"autotune.speedup" in log.read_bytes()
