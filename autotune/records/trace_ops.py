"""What ran in a traced step: op and kernel tables, and the facts about single mechanisms."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Record


class OpRow(Record):
    """A CPU op of the founding table. Nested ops are counted each, as profiler tables do."""

    name: str
    calls: int
    average_us: float
    total_ms: float
    self_ms: float = Field(description="Without the time of ops and runtime calls inside it")


class KernelRow(Record):
    """A GPU kernel of the founding table."""

    name: str
    calls: int
    average_us: float
    total_ms: float
    kernel_class: str | None
    launched_by: str | None = Field(description="The CPU op that launches it most often")


class FoundingTables(Record):
    """Top CPU ops and top GPU kernels."""

    cpu_ops: list[OpRow]
    cpu_calls: int = Field(description="All CPU op calls")
    cpu_distinct: int
    gpu_kernels: list[KernelRow]
    gpu_kernel_count: int = Field(description="All kernels, copies and sets excluded")
    gpu_distinct: int
    median_kernel_us: float | None


class SyncRow(Record):
    """Synchronising calls of one kind from one place."""

    call: str
    count: int
    blocking_ms: float
    op: str | None = Field(description="The op around the call")
    site: str | None = Field(description="file(line): function, when Python stacks were recorded")


class SyncFacts(Record):
    """Host waits for the GPU: runtime calls that wait and copies to the host that block."""

    count: int
    blocking_ms: float
    device_to_host_copies: int
    device_to_host_blocking_ms: float
    at_profiler_end_ms: float = Field(
        description="Waiting in the profiler's own last synchronisation; not included"
    )
    rows: list[SyncRow]


class KernelFamily(Record):
    """Kernels of one implementation."""

    family: str
    kernels: int
    total_ms: float


class AttentionFacts(Record):
    """Which attention implementations ran."""

    backends: dict[str, int] = Field(
        description="Forward calls: flash, efficient, cudnn, math, varlen, flash_package, flex, other"
    )
    backward_calls: dict[str, int]
    calls: int
    mask_passed: int = Field(description="Calls with an attention mask")
    mask_absent: int
    mask_unknown: int
    mask_dtypes: list[str]
    mask_shapes: list[list[int]]
    enable_gqa: bool | None
    causal: bool | None
    query_shapes: list[list[int]]
    key_shapes: list[list[int]]
    dtypes: list[str]
    eager_softmax_calls: int = Field(description="Softmax over score matrices outside any fused attention")
    families: list[KernelFamily] = Field(
        description="Kernels by name: flash2, flash3, flash4, cudnn, efficient, trtllm, flex, triton, ..."
    )
    gpu_ms: float = Field(description="Union of attention kernels and all work launched by attention ops")
    planning_ms: float = Field(default=0.0, description="CPU time in which cuDNN planned for new shapes")


class LinearAttentionFacts(Record):
    """Recurrent mixers: fused kernels, or the signature of the torch fallback."""

    triangular_solves: int = Field(description="aten::linalg_solve_triangular calls")
    triangular_solve_backwards: int
    clone_loop_calls: int = Field(
        description="aten::clone or copy_ calls in the longest forward-substitution loops"
    )
    fast_kernels: int
    fast_kernel_ms: float
    fast_kernel_names: list[str]
    fast_functions: dict[str, int] = Field(description="Autograd functions of fused mixers, with calls")
    fallback_gpu_ms: float = Field(
        description="GPU time between the projections around the fallback's telling calls, with its backward"
    )


class ConvolutionFacts(Record):
    """Short depthwise convolutions: fused kernels or torch's own."""

    depthwise_calls: int = Field(description="Depthwise convolution ops of one dimension")
    depthwise_kernels: int = Field(description="Convolution kernels of depthwise calls, backward included")
    depthwise_kernel_ms: float
    causal_conv_kernels: int
    causal_conv_kernel_ms: float
    matrix_ms: float | None = Field(
        default=None, description="Summed time of convolution kernels that compute on matrix units"
    )


class OptimizerFacts(Record):
    """How the optimizer step runs."""

    name: str | None
    steps: int
    implementation: Literal["fused", "foreach", "for_loop"] | None
    cpu_ms: float
    gpu_ms: float
    kernels: int
    launches: int
    ops: dict[str, int]
    clip_calls: int


class DTypeTime(Record):
    """GEMM time of one data type."""

    dtype: Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8", "unknown"]
    count: int
    total_ms: float


class FlopRow(Record):
    """Floating-point work of one op name."""

    op: str
    calls: int
    gflop: float
    time_ms: float = Field(description="GPU time of the op, or CPU time in a CPU-only trace")
    tflops: float | None


class FlopFacts(Record):
    """Floating-point operations counted from recorded shapes."""

    total_gflop: float
    counted_ms: float = Field(description="Time of the counted ops: GPU, or CPU in a CPU-only trace")
    achieved_tflops: float | None = Field(description="During the counted ops")
    busy_tflops: float | None = Field(description="Over all GPU busy time; None in a CPU-only trace")
    peak_frac: float | None = Field(description="busy_tflops against the peak of the main GEMM data type")
    main_dtype: str | None
    fp64_ms: float | None = Field(default=None, description="Time of the counted ops whose inputs are fp64")
    one_hot_ms: float | None = Field(
        default=None, description="Time of forward products whose first operand has a one-hot matrix's size"
    )
    one_hot_classes: int | None = None
    uncounted_ops: list[str] = Field(description="Ops with matrix work whose shapes do not allow a count")
    rows: list[FlopRow]


class LossHead(Record):
    """The output layer and the loss over its classes, in the whole trace."""

    classes: int
    rows: int = Field(description="Positions that went through the softmax")
    product_ms: float = Field(
        description="Output products, backward included: GPU time, or CPU time without one"
    )
    loss_ms: float = Field(description="Softmax and loss, backward included")
    passes_ms: float = Field(default=0.0, description="Other passes over the logits: casts, copies")


class DataLoading(Record):
    """Time the training thread spends fetching batches."""

    calls: int
    total_ms: float
    longest_ms: float
    name: str | None
    share_frac: float | None = Field(description="Of the CPU span of the trace")


class CopyRow(Record):
    """Memory copies and sets of one direction."""

    direction: str
    count: int
    bytes: int | None
    total_ms: float
    pageable: bool | None


class CompileFacts(Record):
    """torch.compile regions and just-in-time work."""

    compiled_regions: int
    compiled_graph_calls: int
    compiled_kernels: int
    compile_ms: float = Field(description="CPU time in compilation seen in the trace")
    module_loads: int = Field(description="cuModuleLoad* and cuLibraryLoad* calls")
    lazy_loads: int
    autotune_ms: float


class CpuTime(Record):
    """CPU-side time of the whole trace."""

    span_ms: float
    op_self_ms: float
    python_ms: float | None
    runtime_ms: float
    threads: int
    main_thread_busy_frac: float | None
    main_thread_training_frac: float | None = None
    """The same with the whole of autograd's own records, which hold hooks and the release of tensors."""


class MemoryFacts(Record):
    """Allocator totals, where the profiler recorded memory."""

    samples: int
    peak_allocated_gib: float
    peak_reserved_gib: float | None
    first_allocated_gib: float
    last_allocated_gib: float
    peak_at_ms: float


class ModuleRow(Record):
    """Time of one nn.Module class; modules inside it keep their own time."""

    name: str
    calls: int
    outermost_calls: int = Field(description="Calls not made inside another module")
    cpu_ms: float = Field(description="Sum of call durations, modules inside included")
    gpu_ms: float = Field(description="GPU work launched by the module itself")
    kernels: int


class RooflineRow(Record):
    """Achieved rates of one class of work against the device's peaks."""

    op_class: str
    calls: int
    gpu_ms: float
    gflop: float
    gbytes: float
    flop_per_byte: float | None
    tflops: float | None
    gb_s: float | None
    bound: Literal["compute", "memory", "unknown"]
    roof_frac: float | None
