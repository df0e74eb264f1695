"""Values and places nobody wants: each is refused with one line, and no file of the user is lost."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.errors import FilesError, InputError
from autotune.report.archive import pack
from autotune.rules.templates import TemplateFault, check, render
from autotune.rules.yaml_text import read_yaml
from autotune.store import find_run, replacing, write_text


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--sarif", ""],
        ["runs", "--runs-dir", ""],
        ["report", "--price-per-gpu-hour", "nan"],
        ["optimize", "--max-minutes", "inf", "--", "true"],
        ["generate", "--learning-rate", "nan"],
        ["verify", "--min-pairs", "9", "--max-pairs", "2"],
    ],
)
def test_an_empty_path_and_a_number_that_is_none_are_refused(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    assert "[value-refused]" in capsys.readouterr().err


def test_a_pipe_is_written_into_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "said")
    reader.join(10)
    assert read == ["said"] and pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]


def test_a_link_stays_a_link_and_a_private_file_private(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o600)
    (tmp_path / "link").symlink_to("file")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_broken_off_write_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "file") as scratch:
        scratch.write_text("half")
        raise KeyboardInterrupt
    assert (tmp_path / "file").read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_names_that_are_too_long_are_told(tmp_path: Path) -> None:
    with pytest.raises(FilesError, match="File name too long"):
        write_text(tmp_path / ("a" * 300), "x")
    (tmp_path / "at-1").mkdir()
    with pytest.raises(InputError, match="there is no run"):
        find_run(tmp_path, "a" * 5000)


def test_an_archive_inside_its_run_does_not_hold_itself(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert pack(tmp_path, tmp_path / "all.tar.gz", redact=False) == 1
    with tarfile.open(tmp_path / "all.tar.gz") as archive:
        assert [Path(name).name for name in archive.getnames()] == ["run.json"]


def _shell(line: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    line = line.replace("autotune", f"{shlex.quote(sys.executable)} -m autotune")
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **env},
    )


def test_a_reader_that_leaves_is_no_finding(tmp_path: Path) -> None:
    done = _shell("autotune rules list | true; exit ${PIPESTATUS[0]}", tmp_path)
    assert done.returncode == 0 and done.stderr == ""


def test_an_answer_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    done = _shell("autotune rules list > /dev/full", tmp_path)
    assert done.returncode == 7 and "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("closed", "code"), [(">&- autotune runs", 0), ("2>&- autotune show nope", 2)])
def test_closed_streams_are_no_bug(closed: str, code: int, tmp_path: Path) -> None:
    done = _shell(closed, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_terminal_without_an_encoding_gets_escapes_json_knows(tmp_path: Path) -> None:
    (tmp_path / "runs" / "at-\u00fc\U0001f600").mkdir(parents=True)
    done = _shell("autotune runs --json", tmp_path, PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["runs"][0]["id"] == "at-\u00fc\U0001f600"


def test_one_odd_run_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("at-1", "at-2", "at-3"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / "at-1" / "run.json").mkdir()
    os.mkfifo(tmp_path / "runs" / "at-2" / "run.json")
    (tmp_path / "runs" / "at-3" / "run.json").write_text("[" * 100_000)
    assert run(["runs", "--json"]) == 0
    assert [row["state"] for row in json.loads(capsys.readouterr().out)["runs"]] == ["unreadable"] * 3


def test_a_name_that_is_no_text_is_told_as_a_document(tmp_path: Path) -> None:
    (tmp_path / "runs" / "at-1").mkdir(parents=True)
    done = _shell("autotune show --json $'nope-\\xff'", tmp_path)
    assert done.returncode == 2 and json.loads(done.stdout)["error"]["what"] == "there is no run 'nope-?'"


@pytest.mark.parametrize(("text", "errors"), [("a:\n" * 20_000, 20_000), ("x" * 200_001, 1)])
def test_a_file_of_many_faults_is_told_in_time(text: str, errors: int) -> None:
    started = time.monotonic()
    assert len(read_yaml("x.yaml", text).problems) >= errors - 1
    assert time.monotonic() - started < 10  # it was minutes


@pytest.mark.parametrize(
    "text", ["{{ 'x' | center(999999999) }}", "{% for a in 'ab' %}" * 3 + "x" + "{% endfor %}" * 3]
)
def test_a_rule_text_that_would_fill_the_memory_is_refused(text: str) -> None:
    assert check(text, {})[1]


def test_a_number_wider_than_a_sentence_is_refused() -> None:
    assert render("{{ '%.1f' | format(2) }}", {}, {}, {}) == "2.0"
    with pytest.raises(TemplateFault, match="wider than a text"):
        render("{{ '%999999999d' | format(1) }}", {}, {}, {})


@pytest.mark.parametrize(
    "options",
    [["--write", "--in-place"], ["--revert", "--write"], ["--environment", "x", "--write"], ["-o", "x"]],
)
def test_apply_passes_no_option_over_in_silence(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["apply", *options]) == 2
    assert "[usage]" in capsys.readouterr().err


def test_the_settings_of_a_script_are_a_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", "--fields", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["fields"]) > 10
