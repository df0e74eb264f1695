"""What a trace says: the answer of the trace engine, one `RankTrace` per file.

Times are milliseconds of the profiled run. The profiler inflates launch-bound steps, so nothing here is
the speed of the job; GPU busy time and counts are trustworthy, gaps are not. `None` means the trace does
not say; it never means zero.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Document, Record
from autotune.records.trace_comm import Communication, CrossRank, FsdpUnit
from autotune.records.trace_ops import (
    AttentionFacts,
    CompileFacts,
    ConvolutionFacts,
    CopyRow,
    CpuTime,
    DataLoading,
    DTypeTime,
    FlopFacts,
    FoundingTables,
    LinearAttentionFacts,
    LossHead,
    MemoryFacts,
    ModuleRow,
    OptimizerFacts,
    RooflineRow,
    SyncFacts,
)
from autotune.records.trace_time import (
    ClassTime,
    CriticalPath,
    GpuTime,
    IdleCause,
    LaunchFacts,
    Recompute,
    RegionTime,
    Steps,
    StreamFacts,
)


class TraceWarning(Record):
    """Something about the trace that limits what may be concluded from it."""

    code: str
    severity: Literal["info", "caution", "unreliable"]
    text: str


class Validity(Record):
    """Whether the trace can be trusted, and for what."""

    confidence: Literal["high", "medium", "low"]
    training: bool | None = Field(description="A training step; None when the trace cannot tell")
    has_gpu_events: bool
    has_forward: bool
    has_backward: bool
    has_optimizer: bool
    warnings: list[TraceWarning]

    def has(self, code: str) -> bool:
        """Whether a warning of this code was given."""
        return any(warning.code == code for warning in self.warnings)


class TraceFile(Record):
    """The file read, without its folder."""

    name: str
    plain_bytes: int
    events: int
    events_by_category: dict[str, int] = Field(description="Complete (ph X) events by category")
    kernels: int
    memcpys: int
    memsets: int
    cpu_ops: int
    has_shapes: bool
    has_python_stacks: bool
    has_flow_events: bool
    start_unix_ns: int | None = Field(description="Wall-clock time of the first event, when recorded")


class Device(Record):
    """The accelerator the trace was recorded on."""

    name: str | None
    vendor: Literal["nvidia", "amd", "intel", "unknown"]
    visible_count: int | None = Field(description="Devices the process could see")
    used: list[int] = Field(description="Devices on which this process ran work")
    memory_gib: float | None
    sm_count: int | None
    compute_capability: str | None
    bf16_peak_tflops: float | None
    fp32_peak_tflops: float | None
    tf32_peak_tflops: float | None
    fp8_peak_tflops: float | None
    memory_gb_s: float | None
    peak_source: str | None


class RankTrace(Record):
    """Everything one trace file says."""

    file: TraceFile
    validity: Validity
    rank: int | None
    world_size: int | None
    backend: str | None
    device: Device | None
    steps: Steps
    gpu: GpuTime | None
    idle: list[IdleCause] = Field(description="GPU idle time by cause; sums to gpu.idle_ms")
    classes: list[ClassTime]
    unclassified_frac: float | None = Field(description="Share of GPU time no class explains")
    unclassified_kernels: list[str]
    tables: FoundingTables
    launch: LaunchFacts | None
    syncs: SyncFacts
    communication: Communication
    streams: list[StreamFacts]
    regions: list[RegionTime]
    recompute: Recompute
    attention: AttentionFacts
    linear_attention: LinearAttentionFacts
    convolution: ConvolutionFacts
    optimizer: OptimizerFacts
    gemm: list[DTypeTime]
    flops: FlopFacts | None
    data_loading: DataLoading
    copies: list[CopyRow]
    compile: CompileFacts
    cpu: CpuTime
    memory: MemoryFacts | None
    loss_head: LossHead | None = None
    critical_path: CriticalPath | None = None
    roofline: list[RooflineRow] = Field(default_factory=list)
    fsdp_units: list[FsdpUnit] = Field(default_factory=list)
    modules: list[ModuleRow] = Field(default_factory=list, description="Empty without Python stacks")


class TraceSummary(Document):
    """The trace engine's answer for one or more files of one job."""

    ranks: list[RankTrace]
    cross_rank: CrossRank | None = Field(default=None, description="None for a single file")
    warnings: list[TraceWarning] = Field(default_factory=list, description="About the files as a set")


class DiffRow(Record):
    """One op or kernel before and after."""

    name: str
    status: Literal["matched", "new", "gone"]
    kernel_class: str | None
    calls_before: int
    calls_after: int
    total_before_ms: float
    total_after_ms: float
    average_before_us: float | None
    average_after_us: float | None


class DiffTotals(Record):
    """Whole-trace totals before and after."""

    cpu_calls_before: int
    cpu_calls_after: int
    gpu_kernels_before: int
    gpu_kernels_after: int
    median_kernel_before_us: float | None
    median_kernel_after_us: float | None
    gpu_span_before_ms: float | None
    gpu_span_after_ms: float | None
    gpu_busy_before_ms: float | None
    gpu_busy_after_ms: float | None
    steps_before: int
    steps_after: int


class ClassDiff(Record):
    """GPU time of one kernel class before and after."""

    name: str
    count_before: int
    count_after: int
    total_before_ms: float
    total_after_ms: float


class TraceDiff(Document):
    """The founding tables of two traces side by side (per rank 0 of each, as recorded)."""

    before: str
    after: str
    totals: DiffTotals
    cpu_ops: list[DiffRow]
    gpu_kernels: list[DiffRow]
    classes: list[ClassDiff]
    new_kernels: list[str]
    gone_kernels: list[str]
    warnings: list[TraceWarning]
