"""A trace is analysed where Linux's own things are missing, as on macOS: modules, calls, /proc and /sys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TRACE = Path(__file__).parents[1] / "traces" / "h100_1gpu_qwen1.5-0.5b_infer_scrubbed.json.gz"
# Runs in every Python process below: takes away what macOS lacks.
WITHOUT_LINUX = """
import os, select, signal, sys
for name in ("sched_getaffinity", "sched_setaffinity", "memfd_create", "pidfd_open", "posix_fadvise",
             "posix_fallocate", "splice", "copy_file_range", "eventfd", "getrandom", "setresuid", "unshare"):
    if hasattr(os, name):
        delattr(os, name)
for module, name in ((select, "epoll"), (signal, "pidfd_send_signal"), (signal, "SIGRTMIN")):
    if hasattr(module, name):
        delattr(module, name)
for name in ("spwd", "ossaudiodev", "pynvml"):
    sys.modules[name] = None
def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], (str, bytes)):
        path = os.fsdecode(arguments[0])
        if path.startswith(("/proc", "/sys/")):
            raise FileNotFoundError(2, "No such file or directory", path)
    if event == "ctypes.dlopen" and arguments[0] and "libc.so" in str(arguments[0]):
        raise OSError("no libc.so.6 here")
sys.addaudithook(refuse)
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT_LINUX)
    return {**os.environ, "PYTHONPATH": str(tmp_path / "site")}


def test_the_prelude_takes_linux_away(elsewhere: dict[str, str]) -> None:
    code = "import os; assert not hasattr(os, 'sched_getaffinity'); open('/proc/self/status')"
    done = subprocess.run([sys.executable, "-c", code], env=elsewhere, capture_output=True, text=True)
    assert "No such file" in done.stderr


@pytest.mark.parametrize("verb", [["analyze", "--trace"], ["trace"]])
def test_a_trace_is_read(verb: list[str], elsewhere: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autotune", *verb, "--json", str(TRACE)]
    done = subprocess.run(command, env=elsewhere, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema_version"] == 1


def test_runs_are_reported_and_doctor_answers(elsewhere: dict[str, str], tmp_path: Path) -> None:
    for verb in (["analyze", "--quiet", "--trace", str(TRACE)], ["report"], ["runs"], ["doctor"]):
        command = [sys.executable, "-m", "autotune", *verb]
        done = subprocess.run(command, env=elsewhere, cwd=tmp_path, capture_output=True, text=True)
        assert "Traceback" not in done.stderr and "a bug of ours" not in done.stderr, (verb, done.stderr)
        assert done.returncode == 0 or verb == ["doctor"], (verb, done.stderr)
