"""The frame of the command line: verbs, faults, exit codes, what it imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli.main import _VERBS, run


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in _VERBS)


@pytest.mark.parametrize("verb", _VERBS)
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    assert "Example: autotune" in capsys.readouterr().out


def test_help_stays_light() -> None:
    heavy = ("torch", "transformers", "numpy", "scipy", "pydantic", "libcst", "rich", "jinja2", "msgspec")
    code = (
        "import sys; from autotune.cli.main import run; run(['--help']);"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["anlyze"], "did you mean 'analyze'"),
        (["analyze"], "no training command"),
        (["optimize"], "no training command"),
        (["analyze", "--trace", "nowhere.json"], "nowhere.json"),
        (["report", "no-such-run"], "run"),
        (["facts", "--wrong"], "--wrong"),
        (["trace", "nowhere.json"], "nowhere.json"),
        (["diff", "a.json", "b.json"], "a.json"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert len(shown.err.strip().splitlines()) == 1
    assert shown.out == ""


def test_a_command_that_does_not_exist_is_exit_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["analyze", "--", "pythn", "train.py"]) == 3
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("autotune: ")
    assert "pythn" in last


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/self").exists(), reason="needs a read-only place")
def test_a_folder_that_cannot_be_written_is_exit_7(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder should be")
    assert (
        run(["analyze", "--runs-dir", str(blocked / "runs"), "--", sys.executable, str(tmp_path / "file")])
        == 7
    )
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_json_is_alone_on_stdout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["runs", "--json", "--runs-dir", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "runs": []}
    assert run(["facts", "--json", "padding"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema_version"] == 1
    assert any(fact["name"] == "data.padding_frac" for fact in answer["facts"])


def test_options_may_follow_trace_files(tmp_path: Path) -> None:
    trace = Path(__file__).parents[1] / "traces" / "h100_1gpu_qwen1.5-0.5b_infer_scrubbed.json.gz"
    assert run(["analyze", "--trace", str(trace), "--runs-dir", str(tmp_path), "--quiet"]) == 0
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()]
