"""Which steps are warm-up, timed, profiled, and which is the last: the same on every rank.

warm-up (ends when the step time is steady, at most `warmup_steps`) -> timing window without the profiler ->
in mode profile one step for the profiler to start up and then the profiled steps -> stop. With several
ranks on one node rank 0 decides and writes raw/plan.json; without that file every rank keeps to the
settings, which are the same everywhere.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

from . import device_clock, growth, host_samples, progress, stop, tracing
from .core import call_parity, core

_LEAD = 4  # steps between rank 0's decision and its effect: more than ranks can be apart
_STEADY = 1.25  # the last three steps lie within this ratio
_FEWEST = 5  # timed steps, whatever the budget
MOST_LONGER = 16  # times the wanted steps, where they are short


@dataclass
class _Plan:
    begin: int  # the timing window begins after this step
    timed: int

    @property
    def timed_end(self) -> int:
        return self.begin + self.timed


_plan: _Plan | None = None
_recent: list[float] = []
_marked: set[str] = set()


def tags(index: int) -> set[str]:
    """Tags the windows give to step `index`, which is ending now."""
    if core.settings.mode in ("watch", "parity"):
        return set()
    if _plan is None or index <= _plan.begin:
        return {"warmup"}
    if core.settings.mode == "profile" and index > _plan.timed_end:
        return {"profiled"}
    return set()


def boundary(
    index: int, duration_s: float, step_tags: set[str], micro_batches: int, stretch_over: bool = False
) -> None:
    """Called once at the end of every step, in the thread that trains.

    `duration_s`: of the step without the observer's own work, which is much in a small job's first steps.
    `stretch_over`: a stretch of a watched run ended with it.
    """
    mode = core.settings.mode
    if core.settings.memory_probe:
        from . import block_memory

        try:
            block_memory.step_ended(index, micro_batches)
        except Exception:
            core.sink.fault("block_memory.step_ended")
    if "first" not in step_tags:
        _recent.append(duration_s)
        del _recent[:-32]
    marked = len(_marked)
    if mode in ("profile", "timing"):
        _advance(index, micro_batches)
    last = _last_step()
    try:  # whatever fails here, the job is stopped where it was to be stopped
        _tell(index, last, len(_marked) > marked or stretch_over)
    except Exception:
        core.sink.fault("report at a boundary")
    core.sink.flush()
    if index == last and index >= 1 and core.settings.mode != "parity":
        _mark("done", index)
    if last is not None and index >= last and core.settings.stop != "never":
        call_parity("finish")
        stop.stop()


def _tell(index: int, last: int | None, window_began: bool) -> None:
    from . import report

    report.at_boundary(index, window_began, done=index == last)
    progress.show(index, last, tags(index), typical_s())


def _last_step() -> int | None:
    settings = core.settings
    if settings.mode == "watch":
        return None
    if settings.memory_probe:
        return len(settings.memory_probe)
    if settings.mode == "parity":
        return settings.steps
    if _plan is None:
        return None
    extra = 1 + settings.profile_steps if settings.mode == "profile" else 0
    return _plan.timed_end + extra


def _advance(index: int, micro_batches: int) -> None:
    global _plan
    if _plan is None:
        _plan = _decide(index)
        if _plan is None:
            return
    if index >= _plan.begin:
        _mark("timing", index)
    if core.settings.mode == "profile" and core.rank is not None:
        first = _plan.timed_end
        if index == first:
            _mark("profile", index)
            tracing.start(core.settings.profile_steps, typical_s(), micro_batches)
        elif index > first:
            tracing.step()


def _decide(index: int) -> _Plan | None:
    """The plan once it is known: rank 0's on one node, else the settings'."""
    settings, rank = core.settings, core.rank
    if rank is None:
        return None
    default = _Plan(max(1, settings.warmup_steps), settings.steps)
    if rank.world_size == 1:
        if index >= default.begin or _steady():
            return _Plan(index, _affordable(settings.steps))
        return None
    if not rank.one_node:
        return default if index >= default.begin else None
    path = os.path.join(settings.raw, "plan.json")
    if rank.rank == 0:
        begin = index + _LEAD
        if begin >= default.begin or _steady():
            plan = _Plan(max(begin, 1), _affordable(settings.steps))
            core.sink.write_json("plan.json", {"begin": plan.begin, "timed": plan.timed}, settings.raw)
            return plan
        return None
    try:
        with open(path, encoding="utf-8") as file:
            raw = json.load(file)
        return _Plan(int(raw["begin"]), int(raw["timed"]))
    except (OSError, ValueError, KeyError):
        late = max(default.begin, 1 + _LEAD)
        return _Plan(late, settings.steps) if index >= late + settings.steps else None


def _steady() -> bool:
    last = _recent[-3:]
    return len(last) == 3 and max(last) <= _STEADY * min(last)


def typical_s() -> float:
    """Median of the last steps, seconds; 0 when there are none."""
    return sorted(_recent)[len(_recent) // 2] if _recent else 0.0


def _affordable(wanted: int) -> int:
    """How many steps are timed: fewer than wanted where they are long, more where they are short."""
    if not _recent:
        return wanted
    budget, least = core.settings.budget_s, core.settings.least_s
    typical = max(typical_s(), 1e-6)
    quickest = max(min(_recent), 1e-6)  # those of a warm-up tend to be slow
    if least is not None and wanted * quickest < least:
        return min(MOST_LONGER * wanted, -int(-least // quickest))
    return wanted if budget is None else max(_FEWEST, min(wanted, int(budget / typical)))


def _mark(name: str, index: int) -> None:
    """A window begins after step `index` (once); the clock is read after the device has caught up."""
    if name in _marked:
        return
    _marked.add(name)
    if name == "timing":
        growth.settled(index)
    synchronise()
    device_clock.collect()
    core.emit("window", {"name": name, "begins_after": index, "synced_s": time.perf_counter()})
    if name == "timing":
        host_samples.start()
    else:
        host_samples.finish()
        try:
            growth.finish(index)
        except Exception:
            core.sink.fault("growth")


def synchronise() -> None:
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
