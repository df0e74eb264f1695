"""The command line of the fault bench: what cannot work is said before a job starts, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench.faults import scores  # noqa: E402
from bench.faults.analyse import Answer  # noqa: E402
from bench.faults.fix import fix_all, load_rows  # noqa: E402
from bench.faults.options import options  # noqa: E402
from bench.faults.plain import run  # noqa: E402


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--steps 2", "at least 3"),
        ("--fix --steps 3", "with --fix at least 5"),
        ("--limit -3", "at least 1"),
        ("--limit soon", "no number"),
        ("--minutes nan", "at least 0.1"),
        ("--fix --turns 0", "at least 1"),
        ("--max-minutes 3 --unsafe", "--max-minutes and --unsafe: only with --fix"),
        ("--rehearse", "go with --gpu"),
        ("--python /no/such/python", "that can be started"),
        ("--save ../elsewhere", "--results takes a path"),
        ("--save first", "this one stands"),
        ("--fix --save mine", "--results FILE"),
        ("--write-docs --list", "not allowed with"),
        ("--results .", "a folder, not a file"),
    ],
)
def test_a_line_that_cannot_work_is_refused(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        options("", line.split())
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_options_of_repairs_have_defaults() -> None:
    plain, asked = options("", []), options("", ["--fix", "--max-minutes", "3"])
    assert (plain.max_minutes, plain.max_pairs, plain.turns, plain.unsafe) == (5.0, 6, 2, False)
    assert (asked.max_minutes, asked.steps) == (3.0, 8)


def _bench(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "bench.faults", *words]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_nothing_to_run_is_said() -> None:
    none = _bench("--only", "gc-per-step", "--skip", "gc-*", "--list")
    assert none.returncode == 1 and "no job is left" in none.stderr
    healthy = _bench("--fix", "--only", "healthy-dense", "--list")
    assert healthy.returncode == 1 and "repairs faults of time" in healthy.stderr


def test_the_list_as_json() -> None:
    told = json.loads(_bench("--only", "gc-per-step", "--list", "--json").stdout)
    assert [(job["job"], job["needs"], job["family"]) for job in told] == [("gc-per-step", "cpu", "dense")]


def test_a_job_without_an_answer_is_told_and_gives_1(tmp_path: Path) -> None:
    work, kept = str(tmp_path / "work"), str(tmp_path / "x.json")
    done = _bench("--only", "healthy-dense", "--limit", "1", "--work", work, "--results", kept)
    assert done.returncode == 1
    assert "without an answer, and counted as missed: healthy-dense" in done.stdout
    assert "failed: no answer within 1 s" in done.stdout and f"kept in {kept}" in done.stderr


def _answers(path: Path, *names: str) -> None:
    scores.write(path, [Answer(name, 1.0, 0, "") for name in names], scores.heading(False, "x", 1.0))


def test_answers_of_other_jobs_are_not_overwritten(tmp_path: Path) -> None:
    from bench.faults.cases import load_cases

    path = tmp_path / "x.json"
    _answers(path, "gc-per-step", "healthy-dense")
    before = path.read_text()
    one = [case for case in load_cases() if case.id == "gc-per-step"]
    with pytest.raises(SystemExit, match=r"1 other jobs \(healthy-dense"):
        run(one, options("", ["--results", str(path)]))
    assert path.read_text() == before


def test_a_file_of_the_other_kind_is_one_line(tmp_path: Path) -> None:
    plain, broken = tmp_path / "plain.json", tmp_path / "broken.json"
    _answers(plain, "gc-per-step")
    broken.write_text("{")
    with pytest.raises(SystemExit, match="is it one of a plain run"):
        load_rows(plain)
    with pytest.raises(SystemExit, match="damaged"):
        scores.read(broken)


def test_only_the_jobs_that_were_asked_for_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.faults.cases import load_cases

    path = tmp_path / "fix.json"
    row = {"kept": [], "parity": "-", "recovered": 0.0, "why": "no"}
    jobs = [{"case": "gc-per-step", **row}, {"case": "pad-to-max", **row, "failure": "it crashed"}]
    path.write_text(json.dumps({"command": "c", "machine": "m", "jobs": jobs}))
    one = [case for case in load_cases() if case.id == "gc-per-step"]
    assert fix_all(one, options("", ["--fix", "--resume", "--results", str(path)])) == []
    said = capsys.readouterr().out
    assert "gc-per-step" in said and "pad-to-max" not in said and "failed: 0" in said
    assert len(load_rows(path)) == 2
