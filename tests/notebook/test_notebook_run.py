"""`from autotune import Run` on a recorded run: values, frames, faults, HTML, and what importing it costs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autotune import Run
from autotune.errors import InputError

RUNS = Path(__file__).parent / "recorded"
NAME = "at-20261130-000444-train"


@pytest.fixture
def run() -> Run:
    return Run.latest(RUNS)


def test_a_run_is_found_by_path_name_and_part(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.name == NAME and repr(run) == f"Run('{NAME}')"
    assert Run(RUNS / NAME).folder == Run("000444", RUNS).folder == run.folder
    assert [one.name for one in Run.all(RUNS)] == [NAME]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="there is no run"):
        Run.latest()
    with pytest.raises(InputError, match="no-such-run"):
        Run("no-such-run", RUNS)


def test_what_was_found_and_proven(run: Run) -> None:
    assert run.record.command == ["python", "train.py"]
    assert run.verdict.startswith("The step waits for the next batch")
    assert [finding.rule for finding in run.findings] == list(run.findings_table.column("rule"))
    assert run.ladder is not None and run.ladder.outcome == "faster"
    assert list(run.verdicts) == ["trials/001"]
    assert run.verification is run.verdicts["trials/001"]
    low, high = run.verification.interval or (0.0, 0.0)
    assert 1 < low < (run.verification.ratio or 0) < high
    assert len(run.pairs) == run.verification.pairs == 5
    rungs = list(run.rungs)
    assert [row["rung"] for row in rungs] == [0, 1]
    assert rungs[1]["ratio_to_first"] == run.verification.ratio
    assert rungs[0]["low_to_first"] is None


def test_a_table_is_short_at_a_prompt(run: Run) -> None:
    assert len(repr(run.facts_table)) < 200
    assert f"{len(run.steps)} rows" in repr(run.steps) and "duration_ms" in repr(run.steps)


def test_facts_keep_absent_apart_from_zero(run: Run) -> None:
    assert run.value("run.has_gpu") is False
    absent = run.fact("device.utilisation_frac")
    assert absent.state != "value" and absent.value is None
    assert run.value("run.step_ms") == pytest.approx(227.16, abs=0.01)
    with pytest.raises(InputError, match=r"did you mean 'data\.padding_frac'"):
        run.value("data.paddin_frac")
    table = run.facts_table
    row = next(row for row in table if row["fact"] == "device.utilisation_frac")
    assert row["number"] is None and row["text"] is None


def test_steps_of_all_arms(run: Run) -> None:
    steps = run.steps
    arms = set(steps.column("arm"))
    assert arms == {"as it was", "as it is", "data/loader-stall"}
    watched = [row for row in steps if row["purpose"] == "watch"]
    assert run.observation is not None
    assert len(watched) == len(run.observation.ranks[0].steps)
    assert any(row["profiled"] for row in watched) and not all(row["profiled"] for row in watched)
    timed = [row for row in steps if row["purpose"] == "timing"]
    assert {row["block"] for row in timed} == {1, 2, 3, 4, 5}
    assert all(isinstance(row["duration_ms"], float) and row["duration_ms"] > 0 for row in steps)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames(run: Run, kind: str) -> None:
    module = pytest.importorskip(kind)
    for table in (run.steps, run.pairs, run.rungs, run.findings_table, run.facts_table):
        frame = getattr(table, f"to_{kind}")()
        assert isinstance(frame, module.DataFrame)
        assert list(frame.columns) == list(table.columns)
        assert frame.shape == (len(table), len(table.columns))
    blocks = getattr(run.steps, f"to_{kind}")()["block"]
    known = blocks.dropna() if kind == "pandas" else blocks.drop_nulls()
    assert set(known.to_list()) == {1, 2, 3, 4, 5} and len(known) < len(blocks)


def test_a_missing_frame_library_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(InputError, match="pip install polars") as caught:
        run.steps.to_polars()
    assert len(str(caught.value).splitlines()) == 1


def test_html_shows_the_proof_and_escapes_the_job(run: Run, tmp_path: Path) -> None:
    html = run._repr_html_()
    assert "The step waits for the next batch" in html and "identical" in html
    shutil.copytree(RUNS / NAME, tmp_path / NAME)
    card = tmp_path / NAME / "run.json"
    card.write_text(card.read_text().replace('"train.py"', '"<script>alert(1)</script>.py"'))
    assert "<script" not in Run.latest(tmp_path)._repr_html_()
    assert "<table>" in run.steps._repr_html_() and "more rows" in run.steps._repr_html_()


def test_a_run_that_came_to_nothing_says_so(tmp_path: Path) -> None:
    folder = tmp_path / NAME
    folder.mkdir()
    shutil.copy(RUNS / NAME / "run.json", folder)
    run = Run(NAME, tmp_path)
    assert run.ladder is None and run.verification is None and run.observation is None
    assert len(run.rungs) == len(run.pairs) == len(run.steps) == 0
    with pytest.raises(InputError, match="no such record"):
        _ = run.verdict
    assert "state" in run._repr_html_()


def test_importing_autotune_stays_cheap() -> None:
    heavy = ("pydantic", "numpy", "pandas", "polars", "rich", "click", "torch")
    code = (
        f"import autotune, sys; print([m for m in {heavy!r} if m in sys.modules]); from autotune import Run"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError):
        import autotune

        autotune.no_such_name  # noqa: B018
