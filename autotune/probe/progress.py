"""Where the job is, for the parent's display: one small file that rank 0 overwrites in place."""

from __future__ import annotations

import json
import os
import time

from .core import core

_EVERY_S = 0.5
_LENGTH = 192  # one write of one length: a reader never sees half of it
_last_s = 0.0


def show(index: int, last: int | None, tags: set[str], typical_s: float) -> None:
    """Step `index` of `last` has ended; `tags`: what its window is; `typical_s`: of recent steps."""
    global _last_s
    rank = core.rank
    now = time.monotonic()
    if rank is None or rank.rank != 0 or (now - _last_s < _EVERY_S and index != last):
        return
    _last_s = now
    phase = "warm-up" if "warmup" in tags else "profiling" if "profiled" in tags else "timing"
    if last is not None and index > last:  # everything was seen, and the job runs to its end
        phase, last = "running on", None
    value = {
        "step": index,
        "of": last,
        "phase": phase,
        "step_ms": round(typical_s * 1e3, 3) or None,
        "world_size": rank.world_size,
    }
    _write(json.dumps(value).ljust(_LENGTH).encode())


def _write(data: bytes) -> None:
    """Nothing is kept open: a job may close every descriptor and use the number itself."""
    path = os.path.join(core.settings.raw, "progress.json")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
    try:
        os.pwrite(fd, data, 0)
    finally:
        os.close(fd)
