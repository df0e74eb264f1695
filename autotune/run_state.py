"""How far a run came, also when its process was killed before it could write that down."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.records.run import OwnerProcess, RunRecord

_UNFINISHED = ("started", "observed", "optimizing")


def this_process() -> OwnerProcess:
    """The process that makes a run, told apart from a later one with the same number."""
    from autotune.records.run import OwnerProcess

    return OwnerProcess(pid=os.getpid(), host=_host(), started=_started(os.getpid()))


def _host() -> str:
    """Tells machines apart without naming them: a run folder is handed on."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:16]


def state_of(record: RunRecord) -> str:
    """The state on the card, or "interrupted" when the process that would have changed it is gone."""
    owner = record.process
    if record.state not in _UNFINISHED or owner is None or owner.host != _host():
        return record.state
    return record.state if _lives(owner) else "interrupted"


def _lives(owner: OwnerProcess) -> bool:
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # someone else's process has the number
    return owner.started is None or _started(owner.pid) in (None, owner.started)


def _started(pid: int) -> str | None:
    """When a process started, in the kernel's own units with its boot; None where that is not told."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[0] == "Z":
        return "ended"  # a zombie: nobody has collected it yet
    return f"{boot}:{fields[19]}"
