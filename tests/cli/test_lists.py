"""What lists, reports and faults print for people: one line each, the nearest name, the run that is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.records.run import RunRecord
from autotune.store import write_record


def _trace_run(runs: Path, traces: list[str]) -> None:
    record = RunRecord(
        id="at-20260101-000000-trace-x",
        kind="trace",
        created="2026-01-01T00:00:00Z",
        autotune="0.1.0",
        state="diagnosed",
        traces=traces,
    )
    folder = runs / record.id
    folder.mkdir(parents=True)
    write_record(folder / "run.json", record)


def test_a_run_of_many_traces_takes_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _trace_run(Path("runs"), [str(tmp_path / "traces" / f"rank{n}.json.gz") for n in range(8)])
    assert run(["runs"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("diagnosed    traces/rank0.json.gz and 7 more")
    assert run(["show"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert sum(line.endswith(".json.gz") for line in shown) == 8
    assert not any(line.startswith("command") for line in shown)


def test_columns_of_the_configuration_stand_below_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "autotune.toml").write_text('disable = ["debug/*", "launch/*", "comm/*"]\nsteps = 9\n')
    monkeypatch.chdir(tmp_path)
    assert run(["config", "show"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    origins = [row.find("default of") for row in rows if "default of" in row]
    origins += [row.find(str(tmp_path)) for row in rows if str(tmp_path) in row]
    assert len(set(origins)) == 1


def test_a_pattern_with_a_mistyped_category_gets_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = Path(__file__).parents[1] / "traces" / "train_128rank_sampled_rank0.json.gz"
    arguments = ["analyze", "-q", "--runs-dir", str(tmp_path), "--disable", "debgu/*", "--trace", str(trace)]
    assert run(arguments) == 2
    assert "did you mean 'debug/*'?" in capsys.readouterr().err


def test_a_report_says_when_a_newer_run_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = Path(__file__).parents[1] / "traces" / "train_128rank_sampled_rank0.json.gz"
    assert run(["analyze", "-q", "--runs-dir", str(tmp_path), "--trace", str(trace)]) == 0
    (name,) = [folder.name for folder in tmp_path.iterdir()]
    assert run(["report", "--runs-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().err == f"the latest run: {name}\n"
    for verb in (["facts", "--run", "latest"], ["analyze", "--from", "latest"]):
        assert run([*verb, "--runs-dir", str(tmp_path)]) == 0
        assert f"the latest run: {name}" in capsys.readouterr().err
    (tmp_path / "at-99990101-000000-failed").mkdir()
    assert run(["report", "--runs-dir", str(tmp_path)]) == 0
    told = capsys.readouterr().err
    assert "at-99990101-000000-failed, came to no diagnosis" in told and name in told


def test_a_mistyped_option_gets_the_nearest_in_one_pair_of_brackets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["report", "--htlm", "x.html"]) == 2
    told = capsys.readouterr().err
    assert "there is no option '--htlm'; did you mean '--html'? (autotune report --help)" in told


def test_an_unknown_key_names_the_keys_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "autotune.toml").write_text("xx = 1\n")
    monkeypatch.chdir(tmp_path)
    assert run(["config", "show"]) == 2
    told = capsys.readouterr().err
    assert "autotune.toml:1" in told and "runs-dir" in told and "min-gain" in told
