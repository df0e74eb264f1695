"""A log that keeps its two ends."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from autotune.observe import bounded_log
from autotune.observe.bounded_log import BoundedLog
from autotune.observe.launch import launch
from autotune.observe.spec import LaunchSpec


def test_a_short_log_is_whole(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log", head=100, tail=100)
    text = b"".join(b"line %d\n" % number for number in range(35))
    assert 250 < len(text) <= 300
    log.write(text)
    log.close()
    assert (tmp_path / "log").read_bytes() == text and log.left_out == 0 and log.closed


@pytest.mark.parametrize("block", [1, 7, 5000], ids=["line by line", "seven lines", "all at once"])
def test_a_long_log_keeps_both_ends_and_says_what_is_missing(tmp_path: Path, block: int) -> None:
    path = tmp_path / "log"
    log = BoundedLog(path, head=1000, tail=2000)
    lines = [b"line %d\n" % number for number in range(5000)]
    most = 0
    for at in range(0, len(lines), block):
        log.write(b"".join(lines[at : at + block]))
        most = max(most, path.stat().st_size)
    assert most < 5200
    log.close()
    written, whole = path.read_bytes(), b"".join(lines)
    head, notice, tail = re.split(
        rb"\n\[autotune: (\d+) bytes of the output were left out here\]\n\n", written
    )
    assert whole.startswith(head) and whole.endswith(tail) and len(head) > 980 and len(tail) > 1900
    assert int(notice) == log.left_out == len(whole) - len(head) - len(tail)
    assert tail.startswith(b"line ") and head.endswith(b"\n")


def test_a_log_without_line_ends(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log", head=100, tail=100)
    for _ in range(50):
        log.write(b"\xff\x00progress" * 3)
    log.close()
    assert log.left_out and 200 < (tmp_path / "log").stat().st_size < 450


def test_a_job_that_prints_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_log, "HEAD_BYTES", 50_000)
    monkeypatch.setattr(bounded_log, "TAIL_BYTES", 50_000)
    (tmp_path / "job.py").write_text("for i in range(60_000): print('step', i, 'x' * 40)\nprint('the end')\n")
    folder = tmp_path / "launch"
    observation = launch(
        LaunchSpec(command=(sys.executable, "job.py"), cwd=tmp_path, folder=folder, echo="none")
    )
    log = (folder / "train.log").read_text()
    assert len(log) < 250_000 and log.startswith("step 0 x") and log.endswith("the end\n")
    assert "left out here]" in log and observation.log_tail[-1] == "the end"
    assert any("3 MB between them were left out" in note for note in observation.notes), observation.notes
