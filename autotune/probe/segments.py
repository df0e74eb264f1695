"""A watched run in stretches of steps: a few numbers for each, so that hours fit into a small file.

Nothing grows with the run: the durations of a stretch are thinned beyond `_KEPT`, and stretches become
longer the more of them there are.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from . import hook_calls, hook_phases
from .core import core

_FEWEST = 10  # steps of a stretch
_PER_LENGTH = 256  # stretches of one length, then the length doubles
_KEPT = 512  # durations kept of a stretch
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_SUMS = ("tokens", "real_tokens", "loader_wait_ms", "optimizer_ms", "before_backward_ms")


class _Stretch:
    """The steps since the last stretch ended."""

    def __init__(self, first: int, start_s: float, spent: dict[str, float]) -> None:
        self.first = first
        self.start_s = start_s
        self.spent = spent  # pauses so far, to be taken off at the end
        self.durations: list[float] = []
        self.every = 1
        self.steps = self.interrupted = 0
        self.total_ms = self.interrupted_ms = self.longest_ms = 0.0
        self.sums: dict[str, float] = {}

    def add(self, step: dict[str, Any]) -> None:
        duration_ms = step["duration_ms"]
        if step["tags"]:
            self.interrupted += 1
            self.interrupted_ms += duration_ms
            return
        if self.steps % self.every == 0:
            self.durations.append(duration_ms)
            if len(self.durations) > _KEPT:
                del self.durations[1::2]
                self.every *= 2
        self.steps += 1
        self.total_ms += duration_ms
        self.longest_ms = max(self.longest_ms, duration_ms)
        for name in _SUMS:
            if name in step:
                self.sums[name] = self.sums.get(name, 0.0) + step[name]

    def record(self, last: int, end_s: float) -> dict[str, Any]:
        found: dict[str, Any] = {
            "first_step": self.first,
            "last_step": last,
            "start_s": self.start_s,
            "end_s": end_s,
            "steps": self.steps,
            "total_ms": round(self.total_ms, 3),
            "interrupted_steps": self.interrupted,
            "interrupted_ms": round(self.interrupted_ms, 3),
            **{name: round(value, 3) for name, value in self.sums.items()},
            **{f"{kind}_ms": round(ms - self.spent.get(kind, 0.0), 3) for kind, ms in _spent().items()},
            **_memory(),
        }
        if self.durations:
            ordered = sorted(self.durations)
            found["median_ms"] = ordered[len(ordered) // 2]
            found["p95_ms"] = ordered[int(0.95 * (len(ordered) - 1))]
            found["longest_ms"] = round(self.longest_ms, 4)
        return found


_stretch: _Stretch | None = None
_length_s = 0.0
_written = 0


def step_ended(step: dict[str, Any], begin_s: float) -> bool:
    """Take one step in; `begin_s`: when it began. Returns True when a stretch is over."""
    global _stretch, _length_s, _written
    if _stretch is None:
        _length_s = _length_s or core.settings.segment_s
        _stretch = _Stretch(step["index"], begin_s, _spent())
    _stretch.add(step)
    many = step["index"] - _stretch.first + 1 >= _FEWEST
    if not many or step["end_s"] - _stretch.start_s < _length_s:
        return False
    _close(step["index"], step["end_s"])
    _written += 1
    if _written % _PER_LENGTH == 0:
        _length_s *= 2
    return True


def finish(last: int, end_s: float) -> None:
    """The job ends: what the last stretch has."""
    if _stretch is not None:
        _close(last, end_s)


def _close(last: int, end_s: float) -> None:
    global _stretch
    if _stretch is not None:
        core.emit("segment", _stretch.record(last, end_s))
        _stretch = None


def _spent() -> dict[str, float]:
    """Milliseconds in pauses since the start."""
    counts = hook_calls.counts
    found = {kind: hook_phases.spent_ms.get(kind, 0.0) for kind in ("checkpoint", "evaluation")}
    return {**found, "gc": counts.get("gc_ms", 0.0), "log": counts.get("log_ms", 0.0)}


def _memory() -> dict[str, int]:
    found: dict[str, int] = {}
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            found["host_rss_bytes"] = int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        pass
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        found["device_allocated_bytes"] = int(torch.cuda.memory_allocated())
    return found
