"""Where the time of a traced run went: steps, GPU busy and idle time, launches, regions, streams."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Record


class StepTime(Record):
    """One step as the profiler saw it."""

    label: str
    start_ms: float = Field(description="From the first event of the trace")
    span_ms: float = Field(description="CPU start of the step to the CPU start of the next one, or its end")
    gpu_busy_ms: float | None = Field(description="Union of GPU work launched in the step")
    gpu_kernels: int
    launches: int


class Steps(Record):
    """How the trace divides into training steps."""

    source: Literal[
        "profiler_step", "optimizer_annotation", "optimizer_ops", "backward", "repetition", "whole_trace"
    ]
    count: int = Field(
        description="Complete steps found; the whole trace counts as one when nothing divides it"
    )
    steps: list[StepTime]
    micro_batches: int | None = Field(description="Backward passes per optimizer step; None when unknown")


class DeviceTime(Record):
    """Busy and idle time of one device."""

    device: int
    span_ms: float
    busy_ms: float
    idle_ms: float
    operations: int


class GpuTime(Record):
    """GPU time over all devices and streams of the process, exact to the nanosecond."""

    span_ms: float = Field(description="First GPU operation start to last GPU operation end")
    busy_ms: float = Field(description="Union of all kernels, copies and memory sets")
    idle_ms: float
    idle_frac: float
    kernel_sum_ms: float = Field(description="Sum of durations, overlaps counted twice")
    compute_ms: float = Field(description="Union of kernels that do not communicate")
    overlap_ms: float = Field(description="Time with work on two or more streams")
    longest_gap_ms: float
    devices: list[DeviceTime]


class IdleCause(Record):
    """GPU idle time explained by what the CPU did meanwhile."""

    cause: Literal[
        "host_ops",
        "python",
        "launch",
        "sync",
        "data_loading",
        "compile",
        "stream_wait",
        "host_idle",
        "unknown",
    ]
    total_ms: float
    share_frac: float


class ClassTime(Record):
    """GPU time of one kernel class."""

    name: str
    count: int
    total_ms: float = Field(description="Sum of durations")
    union_ms: float = Field(description="Union of intervals")
    share_frac: float = Field(description="Share of the summed GPU time")
    median_us: float


class LaunchFacts(Record):
    """How kernels reached the GPU."""

    calls: int = Field(description="Launch calls of every kind, copies and sets excluded")
    calls_by_name: dict[str, int]
    call_total_ms: float
    call_median_us: float
    graph_launches: int
    matched_kernels: int = Field(description="Kernels whose launch call was found")
    queue_delay_median_us: float | None = Field(description="Kernel start minus launch end, negatives as 0")
    started_at_once_frac: float | None = Field(
        description="Share of kernels started within 15 us of the launch"
    )
    gap_host_busy_ms: float | None = Field(
        description="GPU idle time with the CPU inside ops, Python or launches"
    )
    queue_depth_median: float | None = Field(description="Launched but not started kernels, at each launch")
    queue_empty_frac: float | None = Field(description="Share of launches that met an empty queue")
    median_kernel_us: float | None


class StreamFacts(Record):
    """One GPU stream."""

    device: int
    stream: int
    role: Literal["compute", "communication", "copy", "mixed"]
    operations: int
    busy_ms: float
    top_class: str


class RegionTime(Record):
    """GPU and CPU time of one part of the step."""

    region: Literal["forward", "backward", "optimizer", "recompute", "other"]
    gpu_ms: float = Field(description="Union of GPU work launched in the region")
    gpu_sum_ms: float
    kernels: int
    cpu_ms: float = Field(description="CPU time of the region's threads inside it")


class KernelPair(Record):
    """A forward kernel or op and its backward partner."""

    forward: str
    backward: str
    forward_count: int
    backward_count: int


class Recompute(Record):
    """Activation recomputation (checkpointing)."""

    detected: bool | None = Field(description="None when the trace has no backward pass to judge by")
    gpu_ms: float = Field(description="GPU work launched by recomputed forward ops")
    kernels: int
    regions: int = Field(description="Recomputed segments found inside backward")
    pairs: list[KernelPair] = Field(description="Forward/backward partners with their counts")
    evidence: list[str]


class PathPart(Record):
    """Time on the critical path by kind."""

    kind: Literal["gpu", "communication", "launch", "queue", "host", "sync", "idle"]
    total_ms: float
    share_frac: float


class PathItem(Record):
    """One name that is long on the critical path."""

    name: str
    kind: str
    count: int
    total_ms: float


class CriticalPath(Record):
    """The chain of events that bounds the traced span."""

    span_ms: float
    parts: list[PathPart]
    top: list[PathItem]
