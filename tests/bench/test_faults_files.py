"""Faults of the bench's own surroundings: one line before any job is started, and no result is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.sole_user import sole_user
from bench.faults import scores
from bench.faults.fix import load_rows, write_rows

ROOT = Path(__file__).parents[2]


def bench(*words: object) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.faults", *map(str, words)], cwd=ROOT, capture_output=True, text=True
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", '{"answers": 3}', '{"answers": [1]}', '{"answers": [{"case": "x"}]}']
)
def test_a_damaged_file_of_answers_is_named(tmp_path, text):
    path = tmp_path / "answers.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match=r"answers\.json: "):
        scores.read(path)


@pytest.mark.parametrize("text", ["{", "[]", '{"answers": []}', '{"jobs": []}', '{"jobs": [1]}'])
def test_a_damaged_file_of_repairs_is_named(tmp_path, text):
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match=r"rows\.json: "):
        load_rows(path)


def test_a_row_without_a_job_and_a_full_folder(tmp_path):
    path = tmp_path / "rows.json"
    row = {"case": "gc", "machine": "a", "command": "b"}
    write_rows(path, [row], [])
    assert load_rows(path) == [row] and list(tmp_path.iterdir()) == [path]
    path.write_text(path.read_text().replace('"case"', '"other"'))
    with pytest.raises(SystemExit, match="a row is not whole"):
        load_rows(path)
    (tmp_path / "file").write_text("")
    for place, words in ((tmp_path, "a folder, where"), (tmp_path / "file" / "results.json", "file: ")):
        with pytest.raises(SystemExit, match=words):
            scores.can_be_written(place)


def test_what_cannot_start_is_told_before_any_job(tmp_path):
    file = tmp_path / "file"
    file.write_text("{")
    only = ("--only", "slow-collate", "--work", tmp_path / "work")
    with_fault = {
        "--python: there is no": ("--python", tmp_path / "no-python"),
        "damaged": ("--resume", "--results", file),
        "file: File exists": ("--results", file / "results.json"),
    }
    for words, options in with_fault.items():
        code, said = bench(*only, *options)
        assert code in (1, 2) and words in said and "Traceback" not in said, said
    with sole_user(tmp_path / "work"):
        code, said = bench(*only, "--results", tmp_path / "results.json")
    assert code == 1 and "another process works there" in said and "Traceback" not in said
    assert not list(tmp_path.glob("work/*/runs")), "no job was started"
