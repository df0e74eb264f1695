"""A trace in memory: typed numpy columns for host and GPU events, interned names, and counters.

Times are whole nanoseconds from the earliest event of the file (`origin_ns`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

I8 = npt.NDArray[np.int8]
I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


class Host(IntEnum):
    """Kinds of events on CPU threads."""

    OP = 0
    ANNOTATION = 1
    PYTHON = 2
    RUNTIME = 3
    DRIVER = 4


class Gpu(IntEnum):
    """Kinds of GPU work. Annotations projected on the GPU are no work and are kept elsewhere."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2


HOST_CATEGORIES: dict[str, Host] = {
    "cpu_op": Host.OP,
    "Operator": Host.OP,
    "user_annotation": Host.ANNOTATION,
    "python_function": Host.PYTHON,
    "cuda_runtime": Host.RUNTIME,
    "Runtime": Host.RUNTIME,
    "xpu_runtime": Host.RUNTIME,
    "privateuse1_runtime": Host.RUNTIME,
    "mtia_runtime": Host.RUNTIME,
    "glow_runtime": Host.RUNTIME,
    "cuda_driver": Host.DRIVER,
    "xpu_driver": Host.DRIVER,
    "privateuse1_driver": Host.DRIVER,
}
GPU_CATEGORIES: dict[str, Gpu] = {
    "kernel": Gpu.KERNEL,
    "Kernel": Gpu.KERNEL,
    "concurrent_kernel": Gpu.KERNEL,
    "gpu_memcpy": Gpu.MEMCPY,
    "Memcpy": Gpu.MEMCPY,
    "gpu_memset": Gpu.MEMSET,
    "Memset": Gpu.MEMSET,
}


class Names(dict[str, int]):
    """Interned strings: text to number, numbers in order of first sight."""

    def __missing__(self, text: str) -> int:
        number = len(self)
        self[text] = number
        return number

    def texts(self) -> list[str]:
        """The strings, by number."""
        return list(self.keys())


@dataclass(slots=True)
class HostTable:
    """CPU-side events. `link` is the correlation id of runtime calls and the external id of all others."""

    ts: I64
    dur: I64 | I32
    name: I32
    kind: I8
    thread: I32 | I16
    link: I64 | I32
    sequence: I32  # autograd sequence number, counted from an arbitrary one; -1 when absent
    forward: I8  # 0 inside forward code, 1 inside backward nodes, -1 unknown
    shape: I32  # index into Trace.shapes, -1 when not kept

    def __len__(self) -> int:
        return int(self.ts.size)


@dataclass(slots=True)
class GpuTable:
    """GPU work: kernels, copies, memory sets."""

    ts: I64
    dur: I64
    name: I32
    kind: I8
    device: I32
    stream: I64
    correlation: I64
    external: I64
    bytes: I64  # -1 when not recorded
    collective: I32  # index into Trace.collectives, -1 when not a collective with arguments

    def __len__(self) -> int:
        return int(self.ts.size)

    def where(self, rows: npt.NDArray[np.bool_]) -> GpuTable:
        """The rows that are wanted."""
        return GpuTable(**{column.name: getattr(self, column.name)[rows] for column in fields(self)})


@dataclass(slots=True)
class SpanTable:
    """Named spans that are neither host calls nor GPU work (overhead, GPU-side annotations)."""

    ts: I64
    dur: I64
    name: I32
    lane: I64  # stream or thread number


@dataclass(slots=True)
class MemoryTable:
    """Allocator samples: totals after each allocation or release."""

    ts: I64
    allocated: I64
    reserved: I64
    device_type: I8  # 0 CPU, 1 GPU, -1 unknown


@dataclass(frozen=True, slots=True)
class Shape:
    """Recorded inputs of an op, as JSON text."""

    dims: bytes
    types: bytes
    concrete: bytes


@dataclass(frozen=True, slots=True)
class CollectiveArgs:
    """Arguments c10d attached to a collective; None when absent."""

    name: str
    elements_in: int | None
    elements_out: int | None
    group_size: int | None
    dtype: str | None
    group: str | None
    ranks: str | None


@dataclass(slots=True)
class Trace:
    """One trace file, decoded."""

    host: HostTable
    gpu: GpuTable
    overhead: SpanTable
    gpu_annotations: SpanTable
    memory: MemoryTable
    names: list[str]
    threads: list[tuple[int | str, int | str]]  # (pid, tid) by thread number
    shapes: list[Shape]
    collectives: list[CollectiveArgs]
    host_collectives: dict[int, CollectiveArgs]  # external id of a c10d op to its arguments
    counts: Counter[tuple[str, str]]  # (phase, category) to number of events
    event_count: int
    origin_ns: int
    window_ns: tuple[int, int] | None  # the profiler's own span, relative to the origin
    metadata: dict[str, Any]
    process_names: dict[str, str]
    repairs: Counter[str] = field(default_factory=Counter)
    plain_bytes: int = 0

    @property
    def wall_ns(self) -> int:
        """Origin on the wall clock where the trace records its base time, else the bare origin."""
        base = self.metadata.get("baseTimeNanoseconds")
        if isinstance(base, int) and 0 <= base < 2**62 and abs(self.origin_ns) < 2**62:
            return self.origin_ns + base
        return self.origin_ns

    def count(self, category: str, phase: str = "X") -> int:
        """Number of events of one category."""
        return self.counts.get((phase, category), 0)
