"""Signs that a trace is not one recording of one clock: strays far away, no time at all, things twice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from autotune.records.trace import TraceWarning
from autotune.trace.columns import Host
from autotune.trace.context import Context

_BINS = 1000
_SECOND_NS = 1_000_000_000


def implausible(context: Context) -> Iterator[TraceWarning]:
    """Warnings about times and identities; recorded traces raise none."""
    yield from _far_apart(context)
    yield from _repeated(context)
    yield from _shared_launches(context)


def _far_apart(context: Context) -> Iterator[TraceWarning]:
    """A few events hours from all others stretch the span, and with it the idle time."""
    starts = np.concatenate([context.trace.host.ts, context.trace.gpu.ts]).astype(np.int64)
    if starts.size < 2:
        return
    low, extent = int(starts.min()), int(starts.max()) - int(starts.min())
    if extent == 0 and starts.size > 2:
        yield _unreliable("no_time", f"all {starts.size:,} events start at the same moment")
    if extent < 60 * _SECOND_NS:
        return
    used = np.flatnonzero(np.bincount((starts - low) // (extent // _BINS + 1), minlength=_BINS))
    steps = np.diff(used)
    widest = int(steps.argmax())
    if steps[widest] < 0.5 * _BINS:
        return
    edge = low + int(used[widest] + 1) * (extent // _BINS + 1)
    before = int((starts < edge).sum())
    away, hours = min(before, starts.size - before), steps[widest] * (extent / _BINS) / _SECOND_NS / 3600
    told = f"{hours:,.1f} hours" if hours >= 1 else f"{3600 * hours:,.0f} s"
    yield _unreliable(
        "clock_jump",
        f"{away:,} of {starts.size:,} events lie about {told} from all others: the clock jumped, or a time "
        "is wrong; spans and idle times cannot be trusted",
    )


def _repeated(context: Context) -> Iterator[TraceWarning]:
    count = context.cleaning.repeated
    if count:
        yield _unreliable(
            "repeated_events",
            f"{count:,} GPU operations are in the trace twice (same stream, name and times): counts and sums "
            "are too high, busy time is a union and holds",
        )


def _shared_launches(context: Context) -> Iterator[TraceWarning]:
    """Ids that several launch calls carry: which call launched the operation is a guess."""
    host, gpu = context.trace.host, context.trace.gpu
    shared: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    for kind in (Host.RUNTIME, Host.DRIVER):
        links = np.sort(host.link[(host.kind == kind) & (host.link > 0)])
        shared = np.append(shared, links[1:][links[1:] == links[:-1]])
    count = int(np.isin(gpu.correlation, shared).sum()) if shared.size else 0
    if count:
        yield TraceWarning(
            code="shared_correlation",
            severity="unreliable" if count > 0.02 * len(gpu) else "caution",
            text=f"{count:,} GPU operations carry a correlation id of several launch calls: their cause is "
            "a guess",
        )


def _unreliable(code: str, text: str) -> TraceWarning:
    return TraceWarning(code=code, severity="unreliable", text=text)
