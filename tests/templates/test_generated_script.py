"""`autotune generate`, and what it writes is started."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from script_job import DENSE, metrics, write_rows
from script_job import run as run_script

from autotune.cli.main import run


@pytest.mark.job
def test_a_script_generated_without_a_run_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("peft")
    folder = tmp_path
    monkeypatch.chdir(folder)
    (folder / "config.json").write_text(json.dumps(DENSE))
    write_rows(folder)
    words = [
        "generate",
        "--model",
        "config.json",
        "--data",
        "data.jsonl",
        "-o",
        "train.py",
        "--row-tokens",
        "64",
    ]
    words += [
        "--python",
        sys.executable,
        "--examples-per-step",
        "8",
        "--epochs",
        "3",
        "--learning-rate",
        "1e-2",
        "--lora",
        "4",
        "--eval-data",
        "data.jsonl",
    ]
    settings = ("precision.compute=float32", "run.export=false", "run.log_every=1", "run.save_every=0")
    assert run([*words, *(w for s in settings for w in ("--set", s))]) == 0
    run_script(folder, folder / "train.py")
    *steps, last = metrics(folder, "train_output")
    losses = [record["loss"] for record in steps]
    assert len(losses) == 3 and losses[-1] < losses[0]
    assert last["eval_loss"] < losses[0]
