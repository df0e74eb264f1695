"""What other programs take of the CPU while a launch runs.

The busy time of the cores the job may use, without the time of the job's own processes and of this one, is
the others'. It only matters where no core is idle. A process of the job that nobody waited for is known from
looking at it every second.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path

from autotune.records.observation import CpuLoad

_STAT = Path("/proc/stat")
_EVERY_S = 1.0
_LEAST_S = 0.5  # the clock ticks of /proc/stat say nothing about less


class CpuWatch:
    """From its making to `end`; `pids` tells the job's processes at any moment."""

    def __init__(self, pids: Callable[[], set[int]]) -> None:
        self._pids = pids
        self._seen: dict[tuple[int, str], float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="autotune-cpu")
        self._cores = _usable_cores()
        self._started = time.monotonic()
        self._before = _core_times(self._cores)
        self._own_before_s, self._here_before_s = _children_s(), time.process_time()
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(_EVERY_S):
            for pid in self._pids():
                found = _process_time(pid)
                if found is not None:
                    self._seen[pid, found[0]] = found[1]

    def end(self) -> CpuLoad | None:
        """None where the system does not tell, or after less than half a second. The job has ended."""
        self._over.set()
        self._thread.join(timeout=5)
        after = _core_times(self._cores)
        wall_s = time.monotonic() - self._started
        if self._before is None or after is None or wall_s < _LEAST_S:
            return None
        busy_s, idle_s = (b - a for a, b in zip(self._before, after, strict=True))
        own_s = max(_children_s() - self._own_before_s, sum(self._seen.values()))
        here_s = time.process_time() - self._here_before_s  # of autotune itself, on any core
        return CpuLoad(
            cores=len(self._cores),
            own_cores=round(own_s / wall_s, 3),
            foreign_cores=round(max(0.0, busy_s - own_s - here_s) / wall_s, 3),
            idle_frac=round(idle_s / max(busy_s + idle_s, 1e-9), 3),
        )


def _process_time(pid: int) -> tuple[str, float] | None:
    """When a process started, and the CPU time it has had by itself; None when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[19], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _usable_cores() -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return frozenset(range(os.cpu_count() or 1))


def _core_times(cores: frozenset[int]) -> tuple[float, float] | None:
    """Seconds the cores were busy, and idle, since the start of the machine."""
    try:
        lines = _STAT.read_text().splitlines()
        tick = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None
    busy = idle = 0.0
    for line in lines:
        name, *values = line.split()
        if not name.startswith("cpu") or not name[3:].isdigit() or int(name[3:]) not in cores:
            continue
        ticks = [int(value) for value in values[:8]]
        waiting = ticks[3] + ticks[4]  # idle, and idle with a disk at work
        idle += waiting / tick
        busy += (sum(ticks) - waiting) / tick
    return (busy, idle) if busy + idle > 0 else None


def _children_s() -> float:
    """CPU time of this process's ended children and theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
