"""Draw a trace: lanes for CPU threads and GPU streams, with a bounded number of boxes.

Work on a lane that lies closer together than one column of the picture becomes one box. A box knows how much
of it is covered, so that a thousand short kernels with gaps between them do not look like a busy GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.records.timeline import TimeBox, TimeLane, Timeline, TracePicture
from autotune.trace.classes import load_kernel_table
from autotune.trace.columns import Host
from autotune.trace.context import Context, prepare
from autotune.trace.gpu_time import streams
from autotune.trace.intervals import clip, union
from autotune.trace.memory_curve import memory_curve
from autotune.trace.reader import read_trace
from autotune.trace.regions import Region, find_regions
from autotune.trace.steps import find_steps
from autotune.trace.timeline_kinds import CALLS, REGIONS, call_kinds, class_kinds
from autotune.trace.timeline_window import closer_window, step_window

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_BOXES = 3000  # over all lanes of one picture
_MOST_THREADS = 4
_MOST_STREAMS = 8
_NAME_CHARACTERS = 120
_CALLS = ", runtime calls"


@dataclass(frozen=True, slots=True)
class _Rows:
    """Events of one lane, by start."""

    name: str
    role: str
    starts: I64
    ends: I64
    names: npt.NDArray[np.int32]
    kinds: npt.NDArray[np.int64]
    labels: Sequence[str]


def picture_of(path: Path, *, tables_dir: Path) -> TracePicture:
    """What can be drawn of one trace file. Raises InputError for a file that is no trace."""
    context = prepare(read_trace(path), load_kernel_table(tables_dir))
    return draw(context, path.name)


def draw(context: Context, file: str) -> TracePicture:
    """The step of median length, a closer look at a typical part of it, and the memory curve."""
    memory = memory_curve(context.trace.memory)
    steps = find_steps(context)
    chosen = step_window(context, steps)
    if chosen is None:
        return TracePicture(step=None, closer=None, memory=memory)
    label, low, high = chosen
    rows = _all_rows(context)
    step = _timeline(rows, file, label, low, high, context.trace.names)
    near = closer_window(context, low, high)
    closer = _timeline(rows, file, label, *near, context.trace.names) if near is not None else None
    return TracePicture(step=step, closer=closer, memory=memory)


def _all_rows(context: Context) -> list[_Rows]:
    return [*_thread_rows(context), *_stream_rows(context)]


def _thread_rows(context: Context) -> list[_Rows]:
    """Outermost CPU ops and runtime calls of each thread that runs ops, most time first."""
    host, tree = context.trace.host, context.tree
    ops = host.kind == Host.OP
    if not ops.any():
        return []
    outer = np.flatnonzero(ops & (tree.outermost(ops) == np.arange(len(host))))
    calls = np.flatnonzero(context.of_kind(Host.RUNTIME, Host.DRIVER))
    region = find_regions(context).host.astype(np.int64)
    kind_of_call = call_kinds(context)
    length = tree.end - host.ts
    found: list[_Rows] = []
    for name, thread in _named_threads(host.thread[outer], region[outer], length[outer]):
        mine = outer[host.thread[outer] == thread]
        found.append(
            _Rows(name, "ops", host.ts[mine], tree.end[mine], host.name[mine], region[mine], REGIONS)
        )
        also = calls[host.thread[calls] == thread]
        kinds = kind_of_call[host.name[also]]
        if also.size:
            found.append(
                _Rows(
                    f"{name}{_CALLS}", "calls", host.ts[also], tree.end[also], host.name[also], kinds, CALLS
                )
            )
    return found


def _named_threads(threads: Any, regions: I64, length: I64) -> list[tuple[str, int]]:
    """Names of the threads: the main one (where most forward work runs), the one that runs the backward pass
    alone, then all others by time in ops. On a CPU the main thread runs both."""
    table = np.zeros((int(threads.max()) + 1, len(Region)))
    np.add.at(table, (threads, regions), length)
    order = [
        thread for thread in np.argsort(-table.sum(axis=1), kind="stable").tolist() if table[thread].any()
    ]
    main = int(table[:, Region.FORWARD].argmax()) if table[:, Region.FORWARD].any() else None
    backward = table[:, [Region.BACKWARD, Region.RECOMPUTE]].sum(axis=1)
    alone = next((t for t in order if t != main and backward[t] > 0.5 * table[t].sum()), None)
    if main is None:
        main = next((thread for thread in order if thread != alone), None)
    named = [("CPU, main thread", main), ("CPU, backward thread", alone)]
    known = [(name, thread) for name, thread in named if thread is not None]
    others = [thread for thread in order if thread not in (main, alone)]
    return [*known, *((f"CPU, thread {number}", thread) for number, thread in enumerate(others, 3))]


def _stream_rows(context: Context) -> list[_Rows]:
    """GPU streams: computing ones first, each kind by busy time."""
    gpu = context.trace.gpu
    if not len(gpu):
        return []
    order = {"compute": 0, "mixed": 1, "communication": 2, "copy": 3}
    facts = sorted(streams(context), key=lambda item: (order[item.role], -item.busy_ms))
    several = len({item.device for item in facts}) > 1
    labels, kinds = class_kinds(context.class_names)
    found = []
    for item in facts:
        rows = np.flatnonzero((gpu.device == item.device) & (gpu.stream == item.stream))
        rows = rows[np.argsort(gpu.ts[rows], kind="stable")]
        head = f"GPU {item.device}, stream {item.stream}" if several else f"GPU, stream {item.stream}"
        name = head if item.role == "mixed" else f"{head}: {item.role}"
        found.append(
            _Rows(
                name,
                item.role,
                gpu.ts[rows],
                context.gpu_end[rows],
                gpu.name[rows],
                kinds[context.gpu_class[rows]],
                labels,
            )
        )
    return found


def _timeline(
    rows: Sequence[_Rows], file: str, label: str, low: int, high: int, names: Sequence[str]
) -> Timeline | None:
    inside = [part for part in (_cut(one, low, high) for one in rows) if part.starts.size]
    kept = _most_telling(inside)
    if not kept or high <= low:
        return None
    column = max(1, 2 * (high - low) * len(kept) // _BOXES)
    lanes = [_lane(part, low, high, column, names) for part in kept]
    return Timeline(
        file=file,
        step=label,
        window_ms=(high - low) / 1e6,
        starts_at_ms=low / 1e6,
        lanes=lanes,
        lanes_left_out=len(inside) - len(kept),
        column_ms=column / 1e6,
    )


def _most_telling(rows: list[_Rows]) -> list[_Rows]:
    """Few enough lanes to look at; rows come in order of importance."""
    threads = list(
        dict.fromkeys(row.name.removesuffix(_CALLS) for row in rows if row.role in ("ops", "calls"))
    )
    kept_threads = set(threads[:_MOST_THREADS])
    kept, seen = [], 0
    for row in rows:
        if row.role in ("ops", "calls"):
            if row.name.removesuffix(_CALLS) in kept_threads:
                kept.append(row)
        elif seen < _MOST_STREAMS:
            seen += 1
            kept.append(row)
    return kept


def _cut(rows: _Rows, low: int, high: int) -> _Rows:
    take = (rows.ends > low) & (rows.starts < high) & (rows.ends > rows.starts)
    return _Rows(
        rows.name,
        rows.role,
        np.maximum(rows.starts[take], low),
        np.minimum(rows.ends[take], high),
        rows.names[take],
        rows.kinds[take],
        rows.labels,
    )


def _lane(rows: _Rows, low: int, high: int, column: int, names: Sequence[str]) -> TimeLane:
    covered = union(rows.starts, rows.ends)
    boxes = []
    for first, end in _cuts(rows, column):
        start, stop = int(rows.starts[first]), int(rows.ends[first:end].max())
        spent = rows.ends[first:end] - rows.starts[first:end]
        kind = int(np.bincount(rows.kinds[first:end], weights=spent).argmax())
        name = names[int(rows.names[first + int(spent.argmax())])]
        boxes.append(
            TimeBox(
                start_ms=(start - low) / 1e6,
                end_ms=(stop - low) / 1e6,
                busy_frac=clip(covered, start, stop).total / (stop - start),
                kind=rows.labels[kind],
                events=end - first,
                longest=name[:_NAME_CHARACTERS],
            )
        )
    return TimeLane.model_validate(
        {
            "name": rows.name,
            "role": rows.role,
            "busy_frac": covered.total / (high - low),
            "boxes": boxes,
        }
    )


def _cuts(rows: _Rows, column: int) -> list[tuple[int, int]]:
    """Row ranges of the boxes: one ends at a gap, or, once it is a column wide, where the kind changes.

    Each is a column wide or has a column of gap behind it: there are at most twice as many as columns.
    """
    starts, ends, kinds = rows.starts.tolist(), rows.ends.tolist(), rows.kinds.tolist()
    found = []
    first, begin, stop, kind = 0, starts[0], ends[0], kinds[0]
    for index in range(1, len(starts)):
        wide = stop - begin >= column
        if starts[index] - stop >= column or (wide and kinds[index] != kind):
            found.append((first, index))
            first, begin, stop = index, starts[index], ends[index]
        stop = max(stop, ends[index])
        kind = kinds[index]
    found.append((first, len(starts)))
    return found
