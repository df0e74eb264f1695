"""Collect decoded events chunk by chunk into the columns of a Trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.trace.columns import (
    GPU_CATEGORIES,
    HOST_CATEGORIES,
    CollectiveArgs,
    Gpu,
    GpuTable,
    Host,
    HostTable,
    MemoryTable,
    Names,
    Shape,
    SpanTable,
    Trace,
)
from autotune.trace.decode import NO_RAW, Event, raw_value
from autotune.trace.times import LIMIT_NS, nanosecond_unit, text_to_ns, to_ns

_HOST_TYPES: tuple[Any, ...] = (
    np.int64, np.int64, np.int32, np.int8, np.int32, np.int64, np.int32, np.int8, np.int32,
)  # fmt: skip
_GPU_TYPES: tuple[Any, ...] = (
    np.int64, np.int64, np.int32, np.int8, np.int32, np.int64, np.int64, np.int64, np.int64, np.int32,
)  # fmt: skip
_SPAN_TYPES: tuple[Any, ...] = (np.int64, np.int64, np.int32, np.int64)
_MEMORY_TYPES: tuple[Any, ...] = (np.int64, np.int64, np.int64, np.int8)
_SEPARATOR = b"\0"  # stands in no JSON text
_ID_LIMIT = 2**62
_SEQUENCE_ORIGIN = 2**30


class _Columns:
    """Growing columns of one table. Unused capacity is never touched, so it takes no memory."""

    def __init__(self, types: tuple[Any, ...]) -> None:
        self.size = 0
        self.arrays: list[npt.NDArray[Any]] = [np.empty(1024, dtype=kind) for kind in types]

    def add(self, columns: Sequence[Any]) -> None:
        end = self.size + len(columns[0])
        for at, column in enumerate(columns):
            array = self.arrays[at]
            if end > array.size:
                grown = np.empty(max(end, array.size + array.size // 2), dtype=array.dtype)
                grown[: self.size] = array[: self.size]
                self.arrays[at] = array = grown
            array[self.size : end] = _as(column, array.dtype)
        self.size = end

    def join(self) -> list[npt.NDArray[Any]]:
        return [array[: self.size] for array in self.arrays]


def _as(values: Any, kind: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(values, dtype=kind)
    except OverflowError:
        info = np.iinfo(kind)
        return np.array([min(max(int(value), info.min), info.max) for value in values], dtype=kind)


@dataclass(frozen=True)
class Part:
    """The columns of a later piece of a file, with its own numbering of names, threads and shapes."""

    tables: dict[str, list[npt.NDArray[Any]]]
    names: list[str]
    threads: list[tuple[int | str, int | str]]
    shapes: list[bytes]
    collectives: list[CollectiveArgs]
    host_collectives: dict[int, CollectiveArgs]
    counts: Counter[tuple[str, str]]
    windows: list[tuple[int, int]]
    processes: dict[str, str]
    in_ns: bool | None
    first_sequence: int | None
    events: int
    repairs: Counter[str]


class TraceBuilder:
    """Takes chunks of events in file order; `finish` gives the Trace."""

    def __init__(self, keep_shape: Callable[[str], bool]) -> None:
        self._keep_shape = keep_shape
        self._shape_wanted: list[bool] = []
        self._names = Names()
        self._threads: dict[tuple[int | str, int | str], int] = {}
        self._shapes: dict[bytes, int] = {}  # dimensions, types and concrete inputs, joined
        self._collectives: list[CollectiveArgs] = []
        self._host_collectives: dict[int, CollectiveArgs] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._host = _Columns(_HOST_TYPES)
        self._gpu = _Columns(_GPU_TYPES)
        self._overhead = _Columns(_SPAN_TYPES)
        self._gpu_annotations = _Columns(_SPAN_TYPES)
        self._memory = _Columns(_MEMORY_TYPES)
        self._windows: list[tuple[int, int]] = []
        self._processes: dict[str, str] = {}
        self._in_ns: bool | None = None
        self._first_sequence: int | None = None
        self.events = 0
        self.repairs: Counter[str] = Counter()

    def add(self, events: list[Event], exact: Callable[[], tuple[list[bytes], list[bytes]]]) -> None:
        """Add one chunk. `exact` gives the decimal text of all `ts` and `dur`, in the same order."""
        self.events += len(events)
        ts, dur = self._times(events, exact)
        groups: dict[str, list[int]] = {}
        others: list[int] = []
        for index, event in enumerate(events):
            if event.ph == "X":
                group = groups.get(event.cat)
                if group is None:
                    group = groups[event.cat] = []
                group.append(index)
            else:
                others.append(index)
        host_parts: list[tuple[Host, list[int]]] = []
        for category, rows in groups.items():
            self._counts["X", category] += len(rows)
            if category in HOST_CATEGORIES:
                host_parts.append((HOST_CATEGORIES[category], rows))
            elif category in GPU_CATEGORIES:
                self._add_gpu(GPU_CATEGORIES[category], events, rows, ts, dur)
            elif category == "overhead":
                self._add_spans(self._overhead, events, rows, ts, dur)
            elif category == "gpu_user_annotation":
                self._add_spans(self._gpu_annotations, events, rows, ts, dur)
            elif category == "Trace":
                self._windows.extend((int(ts[row]), int(ts[row] + max(dur[row], 0))) for row in rows)
        for kind, rows in host_parts:
            self._add_host(kind, events, rows, ts, dur)
        self._add_others(events, others, ts)

    def _times(
        self, events: list[Event], exact: Callable[[], tuple[list[bytes], list[bytes]]]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        stamps = [event.ts for event in events]
        if self._in_ns is None:
            self._in_ns = nanosecond_unit(stamps)
        in_ns = bool(self._in_ns)
        lengths = [event.dur for event in events]
        ts = to_ns(stamps, in_ns=in_ns)
        dur = to_ns(lengths, in_ns=in_ns)
        if ts is None or dur is None:
            ts_text, dur_text = exact()
            ts, bad_ts = text_to_ns(ts_text, in_ns=in_ns)
            dur, bad_dur = text_to_ns([text or b"-1" for text in dur_text], in_ns=in_ns)
            self.repairs["unreadable_time"] += bad_ts + bad_dur
        if ts.size and max(-int(ts.min()), int(ts.max())) > LIMIT_NS - 1_000:
            self.repairs["clipped_time"] += int((np.abs(ts) > LIMIT_NS - 1_000).sum())
        return ts, dur

    def _name_ids(self, events: list[Event], rows: Iterable[int]) -> list[int]:
        names = self._names
        return [names[events[row].name] for row in rows]

    def _add_host(self, kind: Host, events: list[Event], rows: list[int], ts: Any, dur: Any) -> None:
        picked = [events[row] for row in rows]
        names = self._names
        name = [names[event.name] for event in picked]
        threads = self._threads
        thread = [threads.setdefault((event.pid, event.tid), len(threads)) for event in picked]
        args = [event.args for event in picked]
        count = len(picked)
        if kind in (Host.RUNTIME, Host.DRIVER):
            link = [arg.correlation for arg in args]
        elif kind == Host.PYTHON:
            link = [-1] * count
        else:
            link = [arg.external for arg in args]
        sequence: Any = np.full(count, -1, dtype=np.int32)
        forward: Any = np.full(count, -1, dtype=np.int8)
        shape: Any = np.full(count, -1, dtype=np.int32)
        if kind == Host.OP:
            sequence = self._relative([arg.sequence for arg in args])
            forward = np.minimum(_as([arg.forward_thread for arg in args], np.int64), 1)
            shape = self._shape_ids(picked, name)
        index = np.asarray(rows, dtype=np.int64)
        self._host.add(
            (ts[index], dur[index], name, np.full(count, kind), thread, link, sequence, forward, shape)
        )

    def _relative(self, sequence: list[int]) -> npt.NDArray[np.int64]:
        """Sequence numbers counted from the first one seen; -1 stays -1."""
        values = _as(sequence, np.int64)
        known = values >= 0
        if self._first_sequence is None and known.any():
            self._first_sequence = int(values[known][0])
        shifted = values - (self._first_sequence or 0) + _SEQUENCE_ORIGIN
        return np.where(known & (shifted >= 0) & (shifted < 2 * _SEQUENCE_ORIGIN), shifted, -1)

    def _shape_ids(self, picked: list[Event], name: list[int]) -> list[int]:
        wanted = self._wanted()
        shapes = self._shapes
        join = _SEPARATOR.join
        ids = []
        for event, number in zip(picked, name, strict=True):
            if not wanted[number]:
                ids.append(-1)
                continue
            args = event.args
            if args.collective is not NO_RAW:
                self._host_collectives[args.external] = _collective(event)
            key = join((args.dims, args.types, args.concrete))
            ids.append(shapes.setdefault(key, len(shapes)))
        return ids

    def _wanted(self) -> list[bool]:
        """Per name number, whether its shapes are kept; extended for names seen since the last call."""
        done = len(self._shape_wanted)
        if done < len(self._names):
            self._shape_wanted.extend(map(self._keep_shape, self._names.texts()[done:]))
        return self._shape_wanted

    def _add_gpu(self, kind: Gpu, events: list[Event], rows: list[int], ts: Any, dur: Any) -> None:
        picked = [events[row] for row in rows]
        args = [event.args for event in picked]
        names = self._names
        collective = [-1] * len(picked)
        if kind == Gpu.KERNEL:
            for at, arg in enumerate(args):
                if arg.collective is not NO_RAW:
                    collective[at] = len(self._collectives)
                    self._collectives.append(_collective(picked[at]))
        index = np.asarray(rows, dtype=np.int64)
        self._gpu.add(
            (
                ts[index],
                dur[index],
                [names[event.name] for event in picked],
                np.full(len(picked), kind),
                [_device(event) for event in picked],
                [_stream(event) for event in picked],
                [arg.correlation for arg in args],
                [arg.external for arg in args],
                [arg.bytes for arg in args],
                collective,
            )
        )

    def _add_spans(self, table: _Columns, events: list[Event], rows: list[int], ts: Any, dur: Any) -> None:
        picked = [events[row] for row in rows]
        index = np.asarray(rows, dtype=np.int64)
        lanes = [event.tid if isinstance(event.tid, int) else -1 for event in picked]
        table.add((ts[index], dur[index], self._name_ids(events, rows), lanes))

    def _add_others(self, events: list[Event], rows: list[int], ts: Any) -> None:
        memory: list[tuple[int, int, int, int]] = []
        counts = Counter((events[row].ph, events[row].cat) for row in rows)
        self._counts.update(counts)
        if not any(phase in ("i", "I", "M") for phase, _ in counts):
            return
        for row in rows:
            event = events[row]
            if event.ph == "M" and event.name in ("process_name", "process_labels"):
                label = raw_value(event.args.name) or raw_value(event.args.labels)
                if isinstance(label, str) and label:
                    key = str(event.pid)
                    self._processes[key] = f"{self._processes.get(key, '')} {label}".strip()
            elif event.name == "[memory]" and event.ph in ("i", "I"):
                values = [raw_value(event.args.allocated), raw_value(event.args.reserved)]
                kind = raw_value(event.args.device_type)
                if isinstance(values[0], int):
                    memory.append(
                        (
                            int(ts[row]),
                            min(values[0], _ID_LIMIT),
                            values[1] if isinstance(values[1], int) else -1,
                            kind if kind in (0, 1) else -1,
                        )
                    )
        if memory:
            self._memory.add(tuple(zip(*memory, strict=True)))

    def _tables(self) -> dict[str, _Columns]:
        return {
            "host": self._host,
            "gpu": self._gpu,
            "overhead": self._overhead,
            "annotations": self._gpu_annotations,
            "memory": self._memory,
        }

    def part(self) -> Part:
        """Everything collected so far, to be joined to the builder of the text before it."""
        return Part(
            tables={name: table.join() for name, table in self._tables().items()},
            names=self._names.texts(),
            threads=list(self._threads),
            shapes=list(self._shapes),
            collectives=self._collectives,
            host_collectives=self._host_collectives,
            counts=self._counts,
            windows=self._windows,
            processes=self._processes,
            in_ns=self._in_ns,
            first_sequence=self._first_sequence,
            events=self.events,
            repairs=self.repairs,
        )

    def absorb(self, part: Part) -> bool:
        """Append a later piece of the same file; False (and no change) when its time unit differs."""
        if self._in_ns is not None and part.in_ns is not None and self._in_ns != part.in_ns:
            return False
        tables = part.tables
        names = _renumber([self._names[text] for text in part.names])
        threads = _renumber([self._threads.setdefault(key, len(self._threads)) for key in part.threads])
        shapes = _renumber([self._shapes.setdefault(key, len(self._shapes)) for key in part.shapes])
        for table in ("host", "gpu", "overhead", "annotations"):
            tables[table][2] = names[tables[table][2]]
        host, gpu = tables["host"], tables["gpu"]
        host[4], host[8] = threads[host[4]], shapes[host[8]]
        if self._first_sequence is None:
            self._first_sequence = part.first_sequence
        elif part.first_sequence is not None:
            moved = host[6].astype(np.int64) + (part.first_sequence - self._first_sequence)
            host[6] = np.where((host[6] >= 0) & (moved >= 0) & (moved < 2 * _SEQUENCE_ORIGIN), moved, -1)
        gpu[9] = np.where(gpu[9] >= 0, gpu[9] + len(self._collectives), -1)
        for name, table_columns in self._tables().items():
            table_columns.add(tables[name])
        self._collectives.extend(part.collectives)
        self._host_collectives.update(part.host_collectives)
        self._counts.update(part.counts)
        self._windows.extend(part.windows)
        for key, label in part.processes.items():
            self._processes[key] = f"{self._processes.get(key, '')} {label}".strip()
        self.events += part.events
        self.repairs.update(part.repairs)
        return True

    def finish(self, metadata: dict[str, Any], plain_bytes: int) -> Trace:
        """Join everything; times become relative to the earliest event."""
        host = HostTable(*self._host.join())
        _narrow(host, len(self._threads))
        gpu = GpuTable(*self._gpu.join())
        overhead, annotations = SpanTable(*self._overhead.join()), SpanTable(*self._gpu_annotations.join())
        memory = MemoryTable(*self._memory.join())
        starts = [table.ts.min() for table in (host, gpu) if table.ts.size]
        origin = int(min(starts)) if starts else 0
        for table in (host, gpu, overhead, annotations, memory):
            table.ts -= origin
        windows = [(start - origin, end - origin) for start, end in self._windows if end > start]
        return Trace(
            host=host,
            gpu=gpu,
            overhead=overhead,
            gpu_annotations=annotations,
            memory=memory,
            names=self._names.texts(),
            threads=list(self._threads),
            shapes=[Shape(*key.split(_SEPARATOR, 2)) for key in self._shapes],
            collectives=self._collectives,
            host_collectives=self._host_collectives,
            counts=self._counts,
            event_count=self.events,
            origin_ns=origin,
            window_ns=(min(w[0] for w in windows), max(w[1] for w in windows)) if windows else None,
            metadata=metadata,
            process_names=self._processes,
            repairs=self.repairs,
            plain_bytes=plain_bytes,
        )


def _renumber(numbers: list[int]) -> npt.NDArray[np.int64]:
    """Old number to new; -1 (absent) stays."""
    return np.array([*numbers, -1], dtype=np.int64)


def _narrow(host: HostTable, threads: int) -> None:
    """Store columns in fewer bytes where their values allow."""
    if not len(host):
        return
    if host.link.max() < 2**31 and host.link.min() >= -1:
        host.link = host.link.astype(np.int32)
    if host.dur.max() < 2**31 and host.dur.min() >= -(2**31):
        host.dur = host.dur.astype(np.int32)
    if threads < 2**15:
        host.thread = host.thread.astype(np.int16)


def _device(event: Event) -> int:
    if event.args.device >= 0:
        return event.args.device
    return event.pid if isinstance(event.pid, int) else -1


def _stream(event: Event) -> int:
    if event.args.stream >= 0:
        return event.args.stream
    return event.tid if isinstance(event.tid, int) else -1


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _collective(event: Event) -> CollectiveArgs:
    args = event.args
    dtype, group, ranks = raw_value(args.dtype), raw_value(args.group_name), raw_value(args.group_ranks)
    return CollectiveArgs(
        name=str(raw_value(args.collective)),
        elements_in=_whole(raw_value(args.nelems_in)),
        elements_out=_whole(raw_value(args.nelems_out)),
        group_size=_whole(raw_value(args.group_size)),
        dtype=dtype if isinstance(dtype, str) else None,
        group=str(group) if group is not None else None,
        ranks=str(ranks) if ranks is not None else None,
    )
