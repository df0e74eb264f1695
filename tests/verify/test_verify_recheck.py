"""A verdict that was changed by hand is found out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from test_verify_comparison import Replay, arms

from autotune.cli.main import run
from autotune.verify.arm import VerifyOptions
from autotune.verify.trial import run_comparison


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder with one verdict."""
    made = tmp_path / "runs" / "at-20260101-000000-job"
    replay = Replay({"slow.py": 100, "fast.py": 70})
    run_comparison(arms(), folder=made / "trials" / "verify", options=VerifyOptions(), launch=replay)
    (made / "run.json").write_text("{}")
    return made


def test_an_untouched_verdict_is_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["verify", "--recompute", "--runs-dir", str(folder.parent), folder.name]
    assert run(args) == 0
    assert "trials/verify/verdict.json: the same" in capsys.readouterr().out


def test_a_changed_ratio_or_step_is_found_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "trials" / "verify" / "verdict.json"
    whole = json.loads(path.read_text())
    whole["ratio"] = 3.0
    path.write_text(json.dumps(whole))
    args = ["verify", "--recompute", "--json", "--runs-dir", str(folder.parent), folder.name]
    assert run(args) == 2
    (row,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert row["differences"] == ["ratio"] and not row["same"]
    whole["ratio"] = 1.0
    for trial in whole["trials"]:
        if trial["arm"] == "patched":
            for step in trial["steps"]:
                step["rank_ms"] = [1.0]
    path.write_text(json.dumps(whole))
    assert run(args) == 2
    shutil.rmtree(folder / "trials")
    assert run(args) == 2  # no verdict at all


@pytest.mark.parametrize("how", ["no arms", "no time"])
def test_a_verdict_that_fits_together_no_longer_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    path = folder / "trials" / "verify" / "verdict.json"
    whole = json.loads(path.read_text())
    if how == "no arms":
        whole["arms"] = []
    for trial in whole["trials"]:
        for step in trial["steps"]:
            step["rank_ms"] = [0.0]
    path.write_text(json.dumps(whole))
    assert run(["verify", "--recompute", str(path)]) == 2
    shown = capsys.readouterr().err
    assert "cannot be judged again" in shown and "record-broken" in shown and len(shown.splitlines()) <= 2


def test_the_record_alone_is_enough(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Copied somewhere else, without run, launches, or anything beside it."""
    lone = tmp_path / "elsewhere" / "theirs.json"
    lone.parent.mkdir()
    shutil.copy(folder / "trials" / "verify" / "verdict.json", lone)
    shutil.rmtree(folder.parent)
    assert run(["verify", "--recompute", str(lone)]) == 0
    assert "theirs.json: the same" in capsys.readouterr().out
    whole = json.loads(lone.read_text())
    lone.write_text(json.dumps({**whole, "schema_version": 2}))
    assert run(["verify", "--recompute", str(lone)]) == 2
    assert "schema version 2" in capsys.readouterr().err
