"""What one launch of the job showed: read from the per-rank event files the probe wrote.

A launch is one start of the user's command with the probe in it: the observation, or an arm of a trial.
Every number here was measured in the job; nothing is derived.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Document, Record
from autotune.records.host import (
    ForwardUses,
    GrowthRecord,
    HostSamples,
    PassesRecord,
    RepeatedCalls,
)
from autotune.records.parity import ParityRecord
from autotune.records.recipe import RecipeRecord
from autotune.records.sites import Site

LaunchMode = Literal["profile", "timing", "parity", "watch"]
StepTag = Literal["first", "warmup", "profiled", "compile", "checkpoint", "evaluation", "gc", "after_profile"]


class StepRecord(Record):
    """One optimizer step on one rank: backward call(s) followed by optimizer call(s)."""

    index: int
    end_s: float  # monotonic clock of the rank
    duration_ms: float
    micro_batches: int = 1
    examples: int | None = None
    tokens: int | None = None  # with padding
    elements: int | None = None  # of all tensors of the batches, when these hold nothing else
    real_tokens: int | None = None  # without padding
    supervised_tokens: int | None = None  # labels that count
    shapes: list[tuple[int, ...]] = Field(default_factory=list)  # token-id shapes of the micro-batches
    loader_wait_ms: float | None = None
    optimizer_ms: float | None = None
    beside_ms: float | None = None  # the loop's own code after the backward and after the optimizer
    outside_ms: float | None = None  # in no forward of the model, backward, optimizer or loader; on the host
    hook_ms: float = 0.0  # time spent in our own hooks, part of duration_ms
    host_ms: float | None = None  # set when duration_ms was taken by the device's clock: the host runs ahead
    tags: list[StepTag] = Field(default_factory=list)


class WindowRecord(Record):
    """A window of steps begins, or the last one ends; two synchronised clocks give a window's true length."""

    name: Literal["timing", "profile", "done"]
    begins_after: int  # step index
    synced_s: float  # clock of the rank after the device had caught up


class LayerKernel(Record):
    """One kernel function of a special layer and what it resolved to."""

    name: str  # e.g. "chunk_gated_delta_rule", "causal_conv1d_fn"
    role: Literal["linear_attention", "causal_conv", "other"]
    implementation: str  # module of the function that runs
    fast: bool
    package: str  # distribution the fast one comes from
    package_version: str | None = None
    reason: str | None = None  # absent | broken | version | switched-off | forward-only
    error: str | None = None  # the real import error of a broken package


class ModelRecord(Record):
    """The outermost model."""

    class_name: str
    model_type: str | None = None
    transformers: bool = False
    parameters: int
    trainable_parameters: int
    adapter_parameters: int | None = None  # of the trainable ones, those of low-rank adapters
    embedding_parameters: int | None = None
    embedding_tied: bool | None = None  # the output head uses the same table, so it does compute
    parameter_dtypes: dict[str, int] = Field(default_factory=dict)  # dtype -> elements (global)
    frozen_dtypes: dict[str, int] = Field(default_factory=dict)  # of the frozen ones
    gradient_parameters: int | None = None  # elements that got a gradient in one backward
    unused_gradient_parameters: int | None = None  # of these, in no optimizer and never written to
    unused_gradient_modules: list[str] = Field(default_factory=list)
    unused_gradients_beside: bool | None = None  # all of them in modules beside the trained model
    needless_backward_frac: float | None = None  # nodes of the graph that lead to such parameters only
    rewalked_backward_frac: float | None = None  # nodes gone through that an earlier backward of the step did
    backwards_per_graph: float | None = None  # more than one: several backwards go through one forward
    penalised_frac: float | None = None  # of the trained values, those that go into the loss by themselves
    local_parameter_bytes: int | None = None
    layers: int | None = None
    layer_types: dict[str, int] = Field(default_factory=dict)
    hidden_size: int | None = None
    head_dim: int | None = None
    attention_heads: int | None = None
    vocab_size: int | None = None
    experts: int | None = None
    attn_implementation: str | None = None
    supports_sdpa: bool | None = None
    use_cache: bool | None = None
    output_attentions: bool | None = None
    is_encoder: bool | None = None
    sliding_window: int | None = None
    dropout_active: bool | None = None
    compiled: bool = False
    lora: bool = False
    kernels: list[LayerKernel] = Field(default_factory=list)
    hub_kernels_asked: bool | None = None  # the job asked transformers for kernels from the hub
    hub_kernel_layers: int | None = None  # layers that may take one
    hub_kernels_replaced: int | None = None  # layers that run one
    # why none runs: absent | switched-off | no-layer | forward-only | no-kernel
    hub_kernels_reason: str | None = None


class ForwardRecord(Record):
    """What reached the outermost model's forward."""

    keys: list[str]
    attention_mask: bool = False
    attention_mask_all_ones: bool | None = None
    position_ids_restart: bool | None = None  # position ids start again within a row
    boundary_arguments: list[str] = Field(default_factory=list)
    use_cache_argument: bool | None = None
    double_inputs: list[str] = Field(default_factory=list)  # arguments that arrive in fp64
    autocast_dtype: str = "none"
    whole_batches: bool | None = None  # it was given about as many values as the loader gave


class OptimizerRecord(Record):
    """One optimizer."""

    class_name: str
    fused: bool | None = None
    foreach: bool | None = None
    implementation: Literal["fused", "foreach", "for-loop", "custom"]
    fused_available: bool | None = None
    parameters: int = 0
    state_bytes: int | None = None
    state_dtypes: dict[str, int] = Field(default_factory=dict)  # dtype -> elements of this rank
    gradient_dtypes: dict[str, int] = Field(default_factory=dict)  # as they reach the optimizer
    gradient_bytes: int | None = None
    idle_values: int | None = None  # updated although their whole row of a table got no gradient in the step
    site: str | None = None


class LoaderRecord(Record):
    """One DataLoader that fed training steps."""

    batch_size: int | None = None
    num_workers: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    prefetch_factor: int | None = None
    drop_last: bool | None = None
    iterable: bool = False
    picklable: bool | None = None
    examples: int | None = None
    batches: int | None = None
    sampler: str | None = None
    own_batch_sampler: bool | None = None  # batches are cut by a sampler that is not torch's
    order_at_once: bool | None = None
    digests: list[str] = Field(default_factory=list)  # of the values of the first batches
    collate: str | None = None
    padding_side: Literal["right", "left", "none"] | None = None
    example_lengths: list[int] = Field(default_factory=list)  # a sample of real lengths
    site: str | None = None


class CheckpointingRecord(Record):
    """Activation checkpointing as it is switched on."""

    enabled: bool
    kind: Literal["transformers", "torch-wrapper", "torch-function", "deepspeed"] | None = None
    reentrant: bool | None = None
    layers: int | None = None


class ShardingRecord(Record):
    """How parameters and gradients are spread."""

    kind: Literal["none", "ddp", "fsdp1", "fsdp2", "deepspeed"]
    units: int | None = None
    param_dtype: str | None = None
    reduce_dtype: str | None = None
    reshard_after_forward: bool | None = None
    mesh: list[int] = Field(default_factory=list)
    gradient_syncs_per_step: float | None = None
    broadcast_bytes: int | None = None  # buffers that never change and that DDP sends in every forward
    changed_buffers: int | None = None  # buffers that it sends and that change
    gradient_bytes: int | None = None  # of what DDP reduces


class ProcessGroupRecord(Record):
    """One process group of torch.distributed that the rank belongs to."""

    name: str
    description: str = ""
    backend: str = ""
    size: int
    ranks: list[int] = Field(default_factory=list)  # of a large group the first 256


class MemoryRecord(Record):
    """Device memory of one rank, bytes; None on the CPU."""

    device_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    allocator_retries: int | None = None
    out_of_memory: bool = False
    host_peak_rss_bytes: int | None = None
    host_bytes: int | None = None  # memory of the host that the job may use


class MemoryStep(Record):
    """Memory of one step of a launch that measures it, longest batch first; bytes of one rank."""

    index: int
    plain_blocks: int  # checkpointed blocks at the front of each forward that ran without checkpointing
    blocks: int  # checkpointed blocks of a forward; 0: nothing was checkpointed
    micro_batches: int = 1
    place: Literal["device", "host"]
    peak_bytes: int
    resting_bytes: int | None = None  # at the end of the step: parameters, gradients, optimizer states
    reserved_bytes: int | None = None
    kept_bytes: int | None = None  # what autograd kept of the largest block that ran plainly
    layers: int | None = None  # equal layers of a model that checkpoints nothing
    layer_bytes: int | None = None  # what autograd kept of one of them
    peak_of_step: bool = True  # false: the host only knows the peak of the whole process


class FlagsRecord(Record):
    """Switches that change speed."""

    anomaly_detection: bool = False
    deterministic: bool = False
    launch_blocking: bool = False
    debugger: bool = False
    profiler_active: bool = False
    tf32_allowed: bool | None = None
    cudnn_benchmark: bool | None = None
    matmul_precision: str | None = None
    verbose_logs: list[str] = Field(default_factory=list)  # names of environment variables


class EnvironmentRecord(Record):
    """Software and hardware as the rank sees it; environment variables only from a short list."""

    python: str
    torch: str
    cuda: str | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    broken_packages: dict[str, str] = Field(default_factory=dict)  # package -> import error
    variables: dict[str, str] = Field(default_factory=dict)
    device_type: str = "cpu"
    device_name: str | None = None
    device_count: int = 0
    compute_capability: float | None = None
    bf16_supported: bool | None = None
    cpu_cores: float | None = None  # what the rank may use (affinity and quota)
    cpu_threads: int | None = None
    interpreter: str = ""


class DeviceSample(Record):
    """One NVML sample of one GPU."""

    at_s: float
    gpu: int
    utilisation_frac: float | None = None
    memory_used_gib: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle_reasons: list[str] | None = None  # None: this GPU or driver does not tell
    foreign_processes: int | None = None


class PhaseRecord(Record):
    """A pause between or inside steps."""

    kind: Literal["checkpoint", "evaluation", "gc", "log", "startup", "compile"]
    start_s: float
    duration_ms: float


class SegmentRecord(Record):
    """A stretch of steps of a watched run. Pauses of steps with a tag are kept apart from the others."""

    first_step: int
    last_step: int
    start_s: float  # clock of the steps
    end_s: float
    steps: int  # without a tag; the figures below are theirs
    total_ms: float
    median_ms: float | None = None
    p95_ms: float | None = None
    longest_ms: float | None = None
    tokens: float | None = None
    real_tokens: float | None = None
    loader_wait_ms: float | None = None
    optimizer_ms: float | None = None
    before_backward_ms: float | None = None  # from a step's begin to its first backward, on the host
    interrupted_steps: int = 0
    interrupted_ms: float = 0.0
    checkpoint_ms: float = 0.0
    evaluation_ms: float = 0.0
    gc_ms: float = 0.0
    log_ms: float = 0.0
    host_rss_bytes: int | None = None  # at the end
    device_allocated_bytes: int | None = None


class CompileReason(Record):
    """Why torch.compile compiled a function again, or broke a graph."""

    kind: Literal["recompile", "graph-break"]
    function: str  # empty when torch does not tell
    file: str
    line: int
    reason: str
    count: int
    pieces: list[str] = Field(default_factory=list)
    """Of a graph break: `file:function` of what was called inside the compiled function at the break."""


class GuardRecord(Record):
    """Something of the user's that was kept from change."""

    action: Literal["redirected", "suppressed", "refused", "allowed"]
    call: str
    target: str
    file: str | None = None
    line: int | None = None


class RankObservation(Record):
    """Everything one rank reported."""

    rank: int
    world_size: int
    environment: EnvironmentRecord
    status: Literal["completed", "stopped", "exception", "killed"]
    error: str | None = None  # type and message of the exception that ended the job
    startup_s: float | None = None
    steps: list[StepRecord] = Field(default_factory=list)
    windows: list[WindowRecord] = Field(default_factory=list)
    model: ModelRecord | None = None
    forward: ForwardRecord | None = None
    forward_uses: ForwardUses | None = None
    repeated_calls: RepeatedCalls | None = None
    host_samples: HostSamples | None = None
    passes: PassesRecord | None = None
    growth: GrowthRecord | None = None
    optimizers: list[OptimizerRecord] = Field(default_factory=list)
    loaders: list[LoaderRecord] = Field(default_factory=list)
    checkpointing: CheckpointingRecord | None = None
    sharding: ShardingRecord | None = None
    process_groups: list[ProcessGroupRecord] = Field(default_factory=list)
    memory: MemoryRecord | None = None
    memory_steps: list[MemoryStep] = Field(default_factory=list)  # of a launch that measures memory
    flags: FlagsRecord | None = None
    recipe: RecipeRecord | None = None
    phases: list[PhaseRecord] = Field(default_factory=list)
    segments: list[SegmentRecord] = Field(default_factory=list)  # of a watched run
    compile_reasons: list[CompileReason] = Field(default_factory=list)
    parity: ParityRecord | None = None
    trace_file: str | None = None  # relative to the launch folder
    traced_steps: int = 0
    traced_micro_batches: int | None = None  # of each traced step; fewer than the step has when shortened
    counters: dict[str, float] = Field(
        default_factory=dict
    )  # e.g. zero_grad_to_zeros, empty_cache, recompiles
    patch_fingerprint: str | None = None  # digest of the edited files this rank really ran
    hook_faults: list[str] = Field(default_factory=list)
    hook_ms_total: float = 0.0


class CpuLoad(Record):
    """The cores a launch may use: its own work and that of other programs, means from its first backward on.

    Over the whole launch where that is not known, or less than two seconds followed it.
    """

    cores: int
    own_cores: float
    foreign_cores: float
    idle_frac: float


class Observation(Document):
    """One launch."""

    mode: LaunchMode
    command: list[str]
    cwd: str
    exit_code: int | None  # of the launcher; None when it was killed by us
    wall_s: float
    ranks: list[RankObservation]
    expected_ranks: int
    sites: list[Site] = Field(default_factory=list)
    guards: list[GuardRecord] = Field(default_factory=list)
    device_samples: list[DeviceSample] = Field(default_factory=list)
    cpu_load: CpuLoad | None = None
    launcher: str | None = None  # program that starts the ranks, as the command says
    trainer_kind: str | None = None
    carrier: str | None = None
    epochs_planned: float | None = None
    max_steps_planned: int | None = None
    log_tail: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    stop_reason: str | None = None
