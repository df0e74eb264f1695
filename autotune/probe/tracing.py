"""The profiler window: one step to start the profiler up, then the profiled steps, exported before the job
goes on.............
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from .core import core

TRACE_NAME = "trace.json.gz"
_profiler: Any = None
_wanted = 0
_seen = 0


def start(steps: int) -> None:
    """Begin at a step boundary; the step that follows warms the profiler up and is not in the trace."""
    global _profiler, _wanted, _seen
    rank = core.rank
    if rank is None or rank.rank not in core.settings.profile_ranks or core.sink.folder is None:
        return
    torch: Any = sys.modules["torch"]
    if torch.autograd._profiler_enabled():
        core.emit("note", {"text": "the job runs a profiler of its own: no trace was recorded"})
        return
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    _wanted, _seen = steps, 0
    _profiler = torch.profiler.profile(
        activities=activities,
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=steps, repeat=1),
        on_trace_ready=_export,
        record_shapes=True,
        with_stack=False,
    )
    try:
        _profiler.start()
    except Exception:
        core.sink.fault("profiler start")
        core.emit("note", {"text": "the profiler did not start: no trace was recorded"})
        _profiler = None


def running() -> bool:
    return _profiler is not None


def step() -> None:
    """A step ended inside the window."""
    global _profiler, _seen
    if _profiler is None:
        return
    _seen += 1
    try:
        _profiler.step()
        if _seen > _wanted:
            finished, _profiler = _profiler, None
            finished.stop()
    except Exception:
        core.sink.fault("profiler step")
        core.emit("note", {"text": "the profiler failed: no trace was recorded"})
        _profiler = None


def _export(profiler: Any) -> None:
    """Write the trace under a temporary name first: a reader sees all of it or nothing."""
    folder = core.sink.folder
    if folder is None:
        return
    from .steps import steps

    begin = time.perf_counter()
    temporary = os.path.join(folder, "trace.tmp.json.gz")
    profiler.export_chrome_trace(temporary)
    os.replace(temporary, os.path.join(folder, TRACE_NAME))
    core.emit(
        "trace",
        {
            "trace_file": os.path.join("raw", os.path.basename(folder), TRACE_NAME),
            "traced_steps": _wanted,
            "first_step": steps.index - _wanted + 1,
            "export_ms": round((time.perf_counter() - begin) * 1e3, 3),
        },
    )
