"""Host waits for the GPU: runtime calls that wait, and copies to the host. Never `aten::item` by count."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from autotune.records.trace_ops import SyncFacts, SyncRow
from autotune.trace.columns import Gpu, Host
from autotune.trace.context import Context

I32 = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

SYNC_CALL = re.compile(
    r"(cuda|hip|cu|xpu)(Stream|Device|Event|Ctx|Context)Synchronize|(cuda|hip)Memcpy$|hipMemcpyWithStream$"
    r"|cuMemcpy(DtoH|HtoD)(_v2)?$|(cuda|hip)(Free|FreeHost|HostUnregister)$"
)
_DEVICE_SYNC = re.compile(r"(cuda|hip|cu)(Device|Ctx)Synchronize")
_TO_HOST = re.compile(
    r"Memcpy DtoH|.*Device -> (Pageable|Pinned|Host)|MemcpyDtoH|Memcpy D2H|CopyDeviceToHost"
)
_LIBRARY = re.compile(
    r"(torch|torchvision|transformers|accelerate|lib|importlib|contextlib|threading|functools)[/.]|<|nn\.Module"
    r"|.*(site|dist)-packages/|threading\.py|contextlib\.py"
)
_PROFILER = re.compile(r"torch/(autograd/)?profiler")


def sync_facts(context: Context) -> SyncFacts:
    """Synchronisations with their blocking time, by call, op and place."""
    host, gpu = context.trace.host, context.trace.gpu
    calls = context.host_named(SYNC_CALL.match, Host.RUNTIME, Host.DRIVER)
    end_of_profile = _profiler_own(context, calls)
    real = np.flatnonzero(calls & ~end_of_profile)
    to_host = (gpu.kind == Gpu.MEMCPY) & context.names(_TO_HOST.match)[gpu.name]
    copy_rows = context.launch_row[to_host]
    copy_rows = copy_rows[copy_rows >= 0]
    return SyncFacts(
        count=int(real.size),
        blocking_ms=int(host.dur[real].sum()) / 1e6,
        device_to_host_copies=int(to_host.sum()),
        device_to_host_blocking_ms=int(host.dur[np.unique(copy_rows)].sum()) / 1e6,
        at_profiler_end_ms=int(host.dur[end_of_profile].sum()) / 1e6,
        rows=_rows(context, real),
    )


def _profiler_own(context: Context, calls: Mask) -> Mask:
    """Device synchronisations the profiler itself makes when it starts and stops."""
    host = context.trace.host
    own = np.zeros(len(host), dtype=bool)
    device = calls & context.host_named(_DEVICE_SYNC.match)
    if not device.any():
        return own
    ops = np.flatnonzero(host.kind == Host.OP)
    first = int(host.ts[ops].min()) if ops.size else 0
    last = int(host.ts[ops].max()) if ops.size else 0
    outside = (context.tree.nearest(host.kind == Host.OP) < 0) & device
    framed = context.tree.nearest(context.host_named(_PROFILER.match, Host.PYTHON)) >= 0
    own = outside & ((host.ts + host.dur <= first) | (host.ts >= last) | framed)
    return own


def _rows(context: Context, rows: npt.NDArray[np.int64]) -> list[SyncRow]:
    host, names = context.trace.host, context.trace.names
    if not rows.size:
        return []
    op = context.tree.nearest(host.kind == Host.OP)[rows]
    sites = _sites(context, rows)
    groups: dict[tuple[str, str | None, str | None], list[int]] = {}
    for row, op_row, site in zip(rows.tolist(), op.tolist(), sites, strict=True):
        key = (names[host.name[row]], names[host.name[op_row]] if op_row >= 0 else None, site)
        groups.setdefault(key, []).append(int(host.dur[row]))
    result = [
        SyncRow(call=call, count=len(times), blocking_ms=sum(times) / 1e6, op=op_name, site=site)
        for (call, op_name, site), times in groups.items()
    ]
    return sorted(result, key=lambda item: -item.blocking_ms)[:50]


def _sites(context: Context, rows: npt.NDArray[np.int64]) -> list[str | None]:
    """The nearest Python frame that is not library code, else the nearest frame of any kind."""
    host, names = context.trace.host, context.trace.names
    frames = host.kind == Host.PYTHON
    if not frames.any():
        return [None] * rows.size
    own = context.tree.nearest(frames & context.host_named(lambda text: not _LIBRARY.match(text)))[rows]
    any_frame = context.tree.nearest(frames)[rows]
    chosen = np.where(own >= 0, own, any_frame)
    return [names[host.name[row]] if row >= 0 else None for row in chosen]
