"""Two at once in one run, a run that was moved or partly deleted, records of a later version."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.errors import InputError
from autotune.optimize.arms import finished_look
from autotune.optimize.patched import _in_its_place, refuse_changed_files
from autotune.optimize.signals import interruptible
from autotune.records.observation import Observation
from autotune.records.plan import PatchedJob
from autotune.sole_user import sole_user

HOLD = """
import sys, time
from pathlib import Path
from autotune.sole_user import sole_user
with sole_user(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_run_has_one_writer_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "held\n"
    named = f"another autotune works in this run .process {other.pid}"
    with pytest.raises(InputError, match=named), sole_user(tmp_path):
        raise AssertionError("two writers")
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    with sole_user(tmp_path), pytest.raises(InputError), sole_user(tmp_path):
        raise AssertionError("two writers in one process")
    with sole_user(tmp_path / "absent"):
        pass  # writing there says what is wrong


def test_a_run_is_not_resumed_with_a_script_that_was_changed(tmp_path: Path) -> None:
    """An environment change edits no file, so only this shows that finished starts ran another script."""
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")

    def watched() -> Observation:
        whole = hashlib.sha256(script.read_bytes()).hexdigest()
        return Observation.model_construct(sites=[SimpleNamespace(file=str(script), file_sha256=whole)])

    before = watched()
    refuse_changed_files(before)
    script.write_text("print(2)\n")
    with pytest.raises(InputError, match="has changed since the run") as raised:
        refuse_changed_files(before)
    assert raised.value.where == str(script)
    refuse_changed_files(watched())
    script.unlink()  # the start itself says that it is gone
    refuse_changed_files(before)


def patched(run: Path) -> PatchedJob:
    tree = run / "patched" / "trial-001-1" / "tree"
    (tree / "src").mkdir(parents=True)
    (tree / "src" / "train.py").write_text("x = 1\n")
    return PatchedJob(
        label="trial-001-1", groups=[], rules=[], command=["python", "train.py"], cwd=str(tree / "src"),
        original_command=[], original_cwd="/", tree=str(tree), fingerprint_files=[str(tree / "src/train.py")],
    )  # fmt: skip


def test_a_moved_or_partly_deleted_run_is_named(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "at-1"
    job = patched(run)
    assert _in_its_place(job, run) is job
    moved = tmp_path / "elsewhere" / "at-1"
    shutil.copytree(run, moved)
    with pytest.raises(InputError) as copied:
        _in_its_place(job, moved)  # the original is still there, but it is another run's
    assert str(run) in (copied.value.hint or "") and copied.value.code == "run-moved"
    (run / "patched/trial-001-1/tree/src/train.py").unlink()
    with pytest.raises(InputError) as broken:
        _in_its_place(job, run)
    assert "train.py" in str(broken.value) and "makes it again" in (broken.value.hint or "")


def test_a_look_cut_short_or_of_a_later_version_is_made_again(tmp_path: Path) -> None:
    job = patched(tmp_path)
    assert finished_look(tmp_path, job) is None
    (tmp_path / "observation.json").write_text('{"mode": "profile", "comm')
    assert finished_look(tmp_path, job) is None
    seen = {
        "mode": "profile", "command": job.command, "cwd": job.cwd, "exit_code": 0, "wall_s": 1.0,
        "expected_ranks": 1, "ranks": [{
            "rank": 0, "world_size": 1, "status": "stopped",
            "environment": {"python": "3.12", "torch": "2.8"},
            "steps": [{"index": 1, "end_s": 1.0, "duration_ms": 5.0}],
        }],
    }  # fmt: skip
    (tmp_path / "observation.json").write_text(json.dumps(seen))
    assert finished_look(tmp_path, job) is not None
    (tmp_path / "observation.json").write_text(json.dumps({**seen, "schema_version": 2}))
    assert finished_look(tmp_path, job) is None
    (tmp_path / "observation.json").write_text(json.dumps({**seen, "command": ["other"]}))
    assert finished_look(tmp_path, job) is None
    edited = job.model_copy(update={"fingerprint": "abc"})
    (tmp_path / "observation.json").write_text(json.dumps(seen))
    assert finished_look(tmp_path, edited) is None


def test_sigterm_between_two_starts_ends_a_loop_like_ctrl_c() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
