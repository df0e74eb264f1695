"""The job's processes: started in a session of their own, signalled as a group, none left behind.

torchrun puts every rank into a session of its own, so the group alone is not the whole job. A process
belongs to the job when it is in the job's group, descends from it, or carries the launch's inject folder in
its environment.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LINUX = sys.platform.startswith("linux")


@dataclass(frozen=True)
class Process:
    """One live process."""

    pid: int
    parent: int
    group: int
    name: str


def dying_with_parent() -> Callable[[], None] | None:
    """For `preexec_fn`: the job is told to end when we are killed. All imports are done before the fork."""
    if not _LINUX:
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl

    def ask_kernel() -> None:
        prctl(1, 15)  # PR_SET_PDEATHSIG, SIGTERM
        # A shell starts background jobs with SIGINT ignored, and that is inherited.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return ask_kernel


def _table() -> dict[int, Process]:
    found: dict[int, Process] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            text = Path(f"/proc/{entry}/stat").read_text(errors="replace")
        except OSError:
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        state, parent, group = rest.split()[:3]
        if state not in "ZX":
            found[int(entry)] = Process(int(entry), int(parent), int(group), name)
    return found


def job_processes(group: int, inject: Path) -> list[Process]:
    """All live processes of the job."""
    if not _LINUX:
        try:
            os.killpg(group, 0)
        except OSError:
            return []
        return [Process(group, os.getpid(), group, "job")]
    table = _table()
    marker = os.fsencode(inject)
    mine = os.getpid()
    found: dict[int, Process] = {}
    for process in table.values():
        if process.pid == mine:
            continue
        if process.group == group or _carries(process.pid, marker):
            found[process.pid] = process
    grown = True
    while grown:
        grown = False
        for process in table.values():
            if process.parent in found and process.pid not in found and process.pid != mine:
                found[process.pid] = process
                grown = True
    return sorted(found.values(), key=lambda p: p.pid)


def _carries(pid: int, marker: bytes) -> bool:
    """Whether the process was started with the inject folder on its PYTHONPATH."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return any(e.startswith(b"PYTHONPATH=") and marker in e[11:].split(b":") for e in environ.split(b"\0"))


def signal_group(group: int, number: signal.Signals) -> None:
    """Signal the job's own process group; a group that is gone is no fault."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def end_job(group: int, inject: Path, grace_s: float = 5.0) -> int:
    """End what is left of the job, first politely; returns how many processes were left."""
    left = job_processes(group, inject)
    if not left:
        return 0
    _signal(left, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        time.sleep(0.1)
        if not job_processes(group, inject):
            return len(left)
    for _ in range(20):
        remaining = job_processes(group, inject)
        if not remaining:
            break
        _signal(remaining, signal.SIGKILL)
        time.sleep(0.05)
    return len(left)


def _signal(processes: list[Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            os.kill(process.pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def end_leftovers(launch_folder: Path) -> int:
    """End processes of a launch whose parent was killed before it could; returns how many there were."""
    return end_job(-1, launch_folder / "inject") if _LINUX else 0
