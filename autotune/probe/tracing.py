"""The profiler window: one step to start the profiler up, then the profiled steps, exported before the job
goes on.

The window shortens itself when a whole step would give too many events: fewer steps, then only the last
micro-batches of one step. It says so; the number of steps the job runs does not change, so ranks stay
together.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .core import core
from .redaction import HOST, scrub

TRACE_NAME = "trace.json.gz"
# Trace events per second of an unprofiled step that is bound by launching: more than any job seen so far.
_EVENTS_PER_S = 250_000
_EVENTS = b'"traceEvents"'
_OF_THIS_MACHINE = re.compile(r'("(?:host_?name|user_?name|user)"\s*:\s*")[^"]*(")')
_profiler: Any = None
_wanted = 0
_ended = 0  # steps ended since the start
_skip = 0  # micro-batches of the profiled step left out at its beginning
_micro_batches = 1
_note = ""
_abandoned = False


def start(steps: int, typical_s: float, micro_batches: int) -> None:
    """Begin at a step boundary; the step that follows warms the profiler up and is not in the trace.

    `typical_s`, `micro_batches`: an unprofiled step of this job.
    """
    global _profiler, _wanted, _ended, _skip, _micro_batches, _note
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
    _micro_batches = max(1, micro_batches)
    _wanted, kept, _note = size(steps, typical_s, _micro_batches, core.settings.max_trace_events)
    _skip = _micro_batches - kept
    _ended = 0
    _profiler = torch.profiler.profile(
        activities=activities,
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=_wanted, repeat=1),
        on_trace_ready=_export,
        record_shapes=True,
        with_stack=False,
    )
    with _quiet():
        _advance("start")


@contextmanager
def _quiet() -> Iterator[None]:
    """The profiler's library writes no lines of its own into the job's error stream (read at its start)."""
    asked = "KINETO_LOG_LEVEL" in os.environ
    if not asked:
        os.environ["KINETO_LOG_LEVEL"] = "99"
    try:
        yield
    finally:
        if not asked:
            os.environ.pop("KINETO_LOG_LEVEL", None)


def size(steps: int, typical_s: float, micro_batches: int, most_events: int) -> tuple[int, int, str]:
    """(steps, micro-batches of a step, what was shortened) so that the trace stays below `most_events`."""
    per_step = max(1.0, typical_s * _EVENTS_PER_S)
    fitting = max(1, min(steps, int(most_events / per_step)))
    kept = micro_batches
    if per_step > most_events and micro_batches > 1:
        kept = max(1, int(micro_batches * most_events / per_step))
    if kept < micro_batches:
        return 1, kept, f"the trace covers the last {kept} of {micro_batches} micro-batches of one step"
    if fitting < steps:
        return fitting, kept, f"{fitting} of {steps} steps were profiled: they are long"
    return fitting, kept, ""


def running() -> bool:
    return _profiler is not None


def backward_ended(count: int) -> None:
    """The `count`-th backward of the running step has ended: a shortened window begins here."""
    if _profiler is not None and _skip and _ended == 1 and count == _skip:
        _advance("step")


def step() -> None:
    """A step ended inside the window."""
    global _ended
    if _profiler is None:
        return
    _ended += 1
    # a shortened window stays in its start-up phase until the micro-batches it wants begin
    if not (_skip and _ended == 1):
        _advance("step")
    if _ended > _wanted:
        _advance("stop")


def abandon() -> None:
    """The job ends inside the window: an active profiler would bring the interpreter's exit down."""
    global _abandoned
    if _profiler is not None:
        _abandoned = True
        _advance("stop")
        core.emit("note", {"text": "the job ended inside the profiled window: no trace was recorded"})


def _advance(action: str) -> None:
    global _profiler
    try:
        if _profiler is not None:
            getattr(_profiler, action)()
        if action == "stop":
            _profiler = None
    except Exception:
        core.sink.fault(f"profiler {action}")
        core.emit("note", {"text": "the profiler failed: no trace was recorded"})
        _profiler = None


def _pack(plain: str, packed: str) -> None:
    """Compress the trace; what stands before its events names this machine, and goes through the filter."""
    with open(plain, "rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
        head = b""
        while _EVENTS not in head and (chunk := source.read(1 << 16)):
            head += chunk
        at = head.find(_EVENTS) if _EVENTS in head else len(head)
        text = scrub(head[:at].decode("utf-8", "replace"))
        target.write(_OF_THIS_MACHINE.sub(rf"\1{HOST}\2", text).encode() + head[at:])
        shutil.copyfileobj(source, target, 1 << 20)


def _export(profiler: Any) -> None:
    """Write the trace under a temporary name first: a reader sees all of it or nothing."""
    folder = core.sink.folder
    if folder is None or _abandoned:
        return
    from .steps import steps

    begin = time.perf_counter()
    plain, packed = os.path.join(folder, "trace.tmp.json"), os.path.join(folder, "trace.tmp.json.gz")
    try:
        profiler.export_chrome_trace(plain)
        _pack(plain, packed)
    finally:
        if os.path.exists(plain):
            os.remove(plain)
    os.replace(packed, os.path.join(folder, TRACE_NAME))
    core.emit(
        "trace",
        {
            "trace_file": os.path.join("raw", os.path.basename(folder), TRACE_NAME),
            "traced_steps": _wanted,
            "traced_micro_batches": _micro_batches - _skip,
            "first_step": steps.index - _wanted + 1,
            "export_ms": round((time.perf_counter() - begin) * 1e3, 3),
        },
    )
    if _note:
        core.emit("note", {"text": _note})
