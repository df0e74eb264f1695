"""A job does not outlive a killed autotune, whatever signals it ignores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from autotune.observe.launch import launch
from autotune.observe.processes import job_processes
from autotune.observe.spec import LaunchSpec

PARENT = """
    import sys
    from pathlib import Path
    from autotune.observe.launch import launch
    from autotune.observe.spec import LaunchSpec
    p = Path(sys.argv[1])
    launch(LaunchSpec(
        command=(sys.executable, "job.py"), cwd=p, folder=p / "launch", echo="none", stop_grace_s=1.0,
        protect=False))
"""
DEAF = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]\n"


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_deaf_job_ends_with_a_killed_autotune(tmp_path: Path) -> None:
    """The job, and a child in a session of its own like a rank of torchrun, ignore every polite signal."""
    (tmp_path / "child.py").write_text(DEAF + "import time\nprint('ready', flush=True); time.sleep(60)\n")
    (tmp_path / "job.py").write_text(
        DEAF
        + textwrap.dedent("""
        import os, json, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "child.py"], start_new_session=True)
        time.sleep(0.5)
        with open("pids.tmp", "w") as file: json.dump([os.getpid(), child.pid], file)
        os.rename("pids.tmp", "pids.json")
        time.sleep(60)
        """)
    )
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path)])
    deadline = time.monotonic() + 30
    while not (tmp_path / "pids.json").exists():
        assert time.monotonic() < deadline and parent.poll() is None
        time.sleep(0.05)
    pids = json.loads((tmp_path / "pids.json").read_text())
    parent.kill()
    parent.wait()
    time.sleep(0.3)
    assert not any(_gone(pid) for pid in pids)  # SIGTERM alone does nothing to them
    deadline = time.monotonic() + 10
    while not all(_gone(pid) for pid in pids):
        assert time.monotonic() < deadline, "the job outlived autotune"
        time.sleep(0.1)
    assert job_processes(-1, tmp_path / "launch" / "inject") == []


def test_the_supervisor_leaves_with_its_job(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import os, time; time.sleep(0.2); print(os.getppid())\n")
    spec = LaunchSpec(
        command=(sys.executable, "job.py"),
        cwd=tmp_path,
        folder=tmp_path / "launch",
        mode="timing",
        echo="none",
    )
    observation = launch(spec)
    assert observation.exit_code == 0 and observation.log_tail == [str(os.getpid())]
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if children.exists():
        names = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children.read_text().split()]
        assert not any(b"supervisor.py" in name for name in names)
