"""Predicted bounds against measured ratios, read from the records of runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.optimize.calibration import per_rule, trial_results
from autotune.records.ladder import Ladder, Rung
from autotune.store import write_record


def make_run(folder: Path, name: str, *rungs: tuple[list[str], float, float | None]) -> None:
    path = folder / name
    path.mkdir(parents=True)
    kept = [
        Rung(name=" + ".join(rules), rules=rules, ratio_to_previous=ratio, predicted_upper=bound)
        for rules, ratio, bound in rungs
    ]
    write_record(
        path / "ladder.json", Ladder(run=name, state="finished", rungs=[Rung(name="as it was"), *kept])
    )


def test_rows_per_rule(tmp_path: Path) -> None:
    make_run(
        tmp_path,
        "at-20260101-000000-a",
        (["attention/eager"], 1.2, 1.44),
        (["kernels/x", "batching/y"], 4.0, 16.0),
    )
    make_run(tmp_path, "at-20260102-000000-b", (["attention/eager"], 1.5, 1.3), (["data/z"], 1.1, None))
    rows = {row.rule: row for row in per_rule(trial_results(tmp_path))}
    eager = rows["attention/eager"]
    assert (eager.trials, eager.kept, eager.above_bound) == (2, 2, 1)
    assert eager.measured == pytest.approx(1.35)
    assert rows["kernels/x"].reached_frac == rows["batching/y"].reached_frac == pytest.approx(0.5)
    assert rows["data/z"].predicted_upper is None
    assert rows["data/z"].reached_frac is None


def test_unreadable_runs_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path, "at-20260101-000000-a", (["attention/eager"], 1.2, 1.44))
    broken = tmp_path / "at-20260103-000000-c"
    broken.mkdir()
    (broken / "ladder.json").write_text("{")
    assert run(["rules", "calibration", "--runs-dir", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["rule"] for row in answer["rules"]] == ["attention/eager"]
    assert answer["trials"][0]["within_bound"] is True
    assert run(["rules", "calibration", "--runs-dir", str(tmp_path)]) == 0
    assert "1.44x" in capsys.readouterr().out


def test_no_trial_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "calibration", "--runs-dir", str(tmp_path)]) == 0
    assert "no verified trial" in capsys.readouterr().out
