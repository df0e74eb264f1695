"""What other programs take of the CPU while a launch runs.

The busy time of the cores the job may use, without the time of the job's own processes and of this one, is
the others'. It only matters where no core is idle. A process of the job that nobody waited for is known from
looking at it every second, and so is what the steps alone ran beside: a job that loads its libraries leaves
cores idle whatever its steps do.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from autotune.records.observation import CpuLoad

_STAT = Path("/proc/stat")
_EVERY_S = 1.0
_LEAST_S = 0.5  # the clock ticks of /proc/stat say nothing about less
_STEPS_S = 2.0  # of steps, to be told apart from the start of the job


class _Look(NamedTuple):
    """Seconds since the beginning of the watch, and CPU seconds up to then."""

    at_s: float
    busy_s: float
    idle_s: float
    own_s: float  # of the job's processes that were seen
    here_s: float  # of autotune itself, on any core


class CpuWatch:
    """From its making to `end`; `pids` tells the job's processes at any moment."""

    def __init__(self, pids: Callable[[], set[int]]) -> None:
        self._pids = pids
        self._seen: dict[tuple[int, str], float] = {}
        self._looks: list[_Look] = []
        self._unseen_s = 0.0  # of the job's processes that were gone before anybody looked
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="autotune-cpu")
        self._cores = _usable_cores()
        self._started = time.monotonic()
        self._children_before_s = _children_s()
        self._look()
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(_EVERY_S):
            for pid in self._pids():
                found = _process_time(pid)
                if found is not None:
                    self._seen[pid, found[0]] = found[1]
            self._look()

    def _look(self) -> None:
        times = _core_times(self._cores)
        if times is not None:
            at_s = time.monotonic() - self._started
            self._looks.append(_Look(at_s, *times, sum(self._seen.values()), time.process_time()))

    def end(self) -> None:
        """The job has ended."""
        self._over.set()
        self._thread.join(timeout=5)
        self._look()
        self._unseen_s = max(0.0, _children_s() - self._children_before_s - sum(self._seen.values()))

    def load(self, after_s: float | None = None) -> CpuLoad | None:
        """Means over the launch, or from `after_s` seconds on; for the launch where too little comes after.

        None where the system does not tell, or for a launch of less than half a second.
        """
        if not self._looks:
            return None
        last = self._looks[-1]
        later = [look for look in self._looks if look.at_s >= (after_s or 0.0)]
        first = later[0] if after_s and later and last.at_s - later[0].at_s >= _STEPS_S else self._looks[0]
        wall_s = last.at_s - first.at_s
        if wall_s < _LEAST_S:
            return None
        busy_s, idle_s = last.busy_s - first.busy_s, last.idle_s - first.idle_s
        own_s = last.own_s - first.own_s + self._unseen_s  # as if all of it fell into this time
        return CpuLoad(
            cores=len(self._cores),
            own_cores=round(own_s / wall_s, 3),
            foreign_cores=round(max(0.0, busy_s - own_s - (last.here_s - first.here_s)) / wall_s, 3),
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
