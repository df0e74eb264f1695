"""The job's own work and that of others are told apart."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from autotune.observe.cpu_load import CpuWatch

BURN = "import time; t=time.time()\nwhile time.time() - t < 1.6: pass"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/stat")
def test_own_processes_are_not_foreign_whether_waited_for_or_not() -> None:
    pids: set[int] = set()
    watch = CpuWatch(lambda: pids)
    process = subprocess.Popen([sys.executable, "-c", BURN])
    pids.add(process.pid)
    time.sleep(1.9)  # seen once after a second; not waited for
    watch.end()
    load = watch.load()
    process.wait()
    assert load is not None and load.own_cores > 0.15
    assert 0.0 <= load.idle_frac <= 1.0

    watch = CpuWatch(set)
    process = subprocess.Popen([sys.executable, "-c", BURN])
    time.sleep(1.2)  # another program's, as far as the watch knows
    watch.end()
    load = watch.load()
    process.wait()
    assert load is not None and load.foreign_cores > 0.2 and load.own_cores < 0.1


def test_a_moment_says_nothing() -> None:
    watch = CpuWatch(set)
    watch.end()
    assert watch.load() is None


def test_what_this_process_does_is_no_other_programs_work(monkeypatch: pytest.MonkeyPatch) -> None:
    busy_s, here_s = iter([10.0, 12.0]), iter([5.0, 6.5])
    monkeypatch.setattr("autotune.observe.cpu_load._core_times", lambda cores: (next(busy_s), 0.0))
    monkeypatch.setattr("autotune.observe.cpu_load.time.process_time", lambda: next(here_s))
    begun = time.monotonic()
    watch = CpuWatch(set)
    time.sleep(0.6)
    watch.end()
    load = watch.load()
    taken_s = 0.5  # 2.0 s busy, 1.5 s of them here
    assert (
        load is not None and 0.1 * taken_s < load.foreign_cores * (time.monotonic() - begun) < 1.2 * taken_s
    )


def test_the_steps_are_told_apart_from_the_start_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that loads its libraries leaves a core idle, whatever its steps run beside."""
    begun = time.monotonic()

    def times(cores: frozenset[int]) -> tuple[float, float]:
        """One of two cores busy for half a second, then both."""
        now = time.monotonic() - begun
        return (now + max(0.0, now - 0.5), min(now, 0.5))

    monkeypatch.setattr("autotune.observe.cpu_load._core_times", times)
    monkeypatch.setattr("autotune.observe.cpu_load._EVERY_S", 0.05)
    monkeypatch.setattr("autotune.observe.cpu_load._STEPS_S", 0.3)
    watch = CpuWatch(set)
    time.sleep(1.2)
    watch.end()
    whole, steps, short = watch.load(), watch.load(after_s=0.6), watch.load(after_s=1.1)
    assert whole is not None and 0.1 < whole.idle_frac < 0.4
    assert steps is not None and steps.idle_frac == 0.0 and 1.8 < steps.foreign_cores < 2.1
    assert short == whole  # too little came after
