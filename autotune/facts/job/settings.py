"""Facts about packages, switches and the data that follow from what a rank reported."""

from __future__ import annotations

from statistics import median

from autotune.facts.sheet import SheetBuilder
from autotune.facts.steady import step_times, steps_by_index
from autotune.facts.versions import stale_packages, version_conflicts
from autotune.records.observation import EnvironmentRecord, Observation, RankObservation

_GIB = 1024.0**3
_FP32_TRAINING_BYTES = 16.0  # fp32 parameter, gradient and two Adam moments


def package_facts(sheet: SheetBuilder, environment: EnvironmentRecord) -> None:
    """Versions that rules ask for, and pairs that do not work together."""
    source = "probe, installed packages"
    packages = {name.replace("_", "-").lower(): version for name, version in environment.packages.items()}
    for fact, package in (
        ("env.tilelang", "tilelang"),
        ("env.liger_kernel", "liger-kernel"),
        ("env.mamba_ssm", "mamba-ssm"),
        ("env.hub_kernels", "kernels"),
    ):
        if package in packages:
            sheet.put(fact, packages[package], source)
        else:
            sheet.not_applicable(fact, f"{package} is not installed")
    conflicts = version_conflicts(packages, environment.compute_capability)
    sheet.put("env.version_conflicts", [text for _, text in conflicts], f"{source}; table of versions")
    cupti = next((v for name, v in packages.items() if name.startswith("nvidia-cuda-cupti")), None)
    sheet.put("env.cupti", cupti, source, why="no package of CUPTI is installed")
    below = {"cuda": environment.cuda, "cupti": cupti}  # what torch brings along
    known = {**packages, **{name: version for name, version in below.items() if version is not None}}
    sheet.put("env.stale_packages", stale_packages(known), f"{source}; table of versions")
    asked = sheet.value("kernels.hub_kernels_asked")
    if asked is not None:
        inert = asked is True and any(package == "kernels" for package, _ in conflicts)
        sheet.put("kernels.hub_kernels_inert", inert or (asked is True and "kernels" not in packages), source)
    on_cpu = environment.device_type == "cpu"
    sheet.put("env.gpu_unused", on_cpu and environment.device_count > 0, "probe, devices torch sees")


def switch_facts(sheet: SheetBuilder, lead: RankObservation) -> None:
    """Environment variables and backend switches, one fact each."""
    variables = lead.environment.variables
    source = "probe, environment variables"

    def on(name: str) -> bool:
        return variables.get(name, "0").lower() not in ("", "0", "false", "no", "off")

    sheet.put("debug.distributed_debug", variables.get("TORCH_DISTRIBUTED_DEBUG", "") == "DETAIL", source)
    sheet.put("debug.compile_disabled", on("TORCH_COMPILE_DISABLE") or on("TORCHDYNAMO_DISABLE"), source)
    sheet.put("debug.triton_interpreted", on("TRITON_INTERPRET"), source)
    sheet.put("debug.blocking_wait", on("TORCH_NCCL_BLOCKING_WAIT") or on("NCCL_BLOCKING_WAIT"), source)
    sheet.put("debug.python_dev_mode", on("PYTHONDEVMODE"), source)
    sheet.put(
        "comm.nccl_paths_disabled",
        [name for name in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE") if on(name)],
        source,
    )
    allocator = variables.get("PYTORCH_CUDA_ALLOC_CONF", "") + variables.get("PYTORCH_ALLOC_CONF", "")
    sheet.put("memory.expandable_segments", "expandable_segments:True" in allocator, source)
    if lead.flags is not None:
        sheet.put("debug.cudnn_benchmark", lead.flags.cudnn_benchmark, "probe, torch backends")


def model_detail_facts(sheet: SheetBuilder, lead: RankObservation) -> None:
    """Sizes that decide whether a remedy fits."""
    model = lead.model
    if model is None:
        return
    source = "probe, model"
    if model.vocab_size:
        sheet.put(
            "model.vocab_misaligned", model.vocab_size % 8 != 0, source, f"vocabulary {model.vocab_size}"
        )
    if model.sliding_window:
        sheet.put("attention.window_tokens", model.sliding_window, source)
    elif model.transformers:
        sheet.not_applicable("attention.window_tokens", "no sliding window")
    packages = [k.package for k in model.kernels if k.role == "linear_attention"]
    if packages:
        sheet.put("kernels.linear_attention_package", packages[0], "probe, resolved kernel functions")
    sheet.put("memory.parameters_gib", model.parameters * 2 / _GIB, source, "two bytes each")
    device = sheet.number("memory.device_gib")
    trainable = model.trainable_parameters * _FP32_TRAINING_BYTES
    frozen = (model.parameters - model.trainable_parameters) * 2.0
    if device:
        whole = (trainable + frozen) / _GIB / device
        basis = "16 bytes per trained, 2 per frozen parameter"
        sheet.put("memory.unsharded_static_frac", whole, source, basis)
    if lead.optimizers:
        sheet.put("optimizer.parameters", sum(o.parameters for o in lead.optimizers), "probe, optimizer")
        state = [o.state_bytes for o in lead.optimizers if o.state_bytes]
        if state:
            sheet.put("memory.optimizer_state_gib", sum(state) / _GIB, "probe, optimizer", "rank 0")


def batch_detail_facts(sheet: SheetBuilder, observation: Observation) -> None:
    """Lengths of examples, balance between ranks, steps without any label."""
    lead = observation.ranks[0]
    _scores(sheet, lead)
    if lead.parity is not None and lead.parity.isolation:
        records = lead.parity.isolation
        leak = max(max(0.0, one.after_change_frac - one.repeat_change_frac) for one in records)
        sheet.put("packing.measured_leak_frac", leak, "probe, isolation test", f"{len(records)} packed rows")
    labelled = [step for step in lead.steps if step.supervised_tokens is not None]
    if labelled:
        empty = sum(step.supervised_tokens == 0 for step in labelled) / len(labelled)
        sheet.put("data.steps_without_labels_frac", empty, "probe, labels", f"{len(labelled)} steps, rank 0")
    _balance(sheet, observation)
    if not lead.loaders:
        return
    loader = lead.loaders[0]
    source = "probe, DataLoader arguments"
    sheet.put("data.order_at_once", loader.order_at_once, source)
    sheet.put("data.persistent_workers", loader.persistent_workers, source)
    sheet.put("data.prefetch_factor", loader.prefetch_factor, source)
    lengths = sorted(loader.example_lengths)
    if len(lengths) >= 50:
        middle, high = lengths[len(lengths) // 2], lengths[int(0.99 * (len(lengths) - 1))]
        basis = f"{len(lengths)} examples"
        if middle:
            sheet.put("data.length_p99_over_median", high / middle, "probe, batches", basis)
        capped = lengths.count(lengths[-1]) / len(lengths)
        sheet.put(
            "data.capped_examples_frac", capped if capped > 1 / len(lengths) else 0.0, "probe, batches", basis
        )


def _scores(sheet: SheetBuilder, lead: RankObservation) -> None:
    longest, rows = sheet.number("data.max_length_seen"), sheet.number("data.batch_size")
    if lead.model is None or not (lead.model.attention_heads and longest and rows):
        return
    scores = rows * lead.model.attention_heads * longest**2 * 4.0
    sheet.put(
        "attention.score_bytes_gib", scores / _GIB, "derived", "median batch at the largest length, fp32"
    )


def _balance(sheet: SheetBuilder, observation: Observation) -> None:
    if observation.expected_ranks == 1 or len(observation.ranks) < 2:
        if observation.expected_ranks == 1:
            sheet.not_applicable("data.rank_token_skew_frac", "one rank")
        return
    skews = []
    for row in steps_by_index(observation).values():
        tokens = [step.real_tokens or step.tokens for _, step in row]
        known = [count for count in tokens if count]
        if len(known) == len(observation.ranks):
            skews.append(max(known) / (sum(known) / len(known)) - 1.0)
    if skews:
        sheet.put(
            "data.rank_token_skew_frac", median(skews), "probe, batches of all ranks", f"{len(skews)} steps"
        )


def pause_facts(sheet: SheetBuilder, observation: Observation) -> None:
    """Pauses of the garbage collector inside the timed steps; those of the start say nothing of the rest."""
    lead = observation.ranks[0]
    timed = set(step_times(observation).indices)
    spans = [(s.end_s - s.duration_ms / 1000.0, s.end_s) for s in lead.steps if s.index in timed]
    if not spans:
        return
    pauses = [p for p in lead.phases if p.kind == "gc"]
    inside = [p for p in pauses if any(start <= p.start_s < end for start, end in spans)]
    spent = sum(p.duration_ms for p in inside)
    sheet.put("stall.gc_pauses_seen", len(inside), "probe, gc callbacks", f"{len(spans)} timed steps, rank 0")
    sheet.put(
        "stall.gc_ms_per_step", spent / len(spans), "probe, gc callbacks", f"{len(spans)} timed steps, rank 0"
    )


_COUNTED = {"stall.gc_collects_per_step": "gc_collect", "memory.empty_cache_per_step": "empty_cache"}
_GPU_ONLY = (
    "attention.gpu_frac",
    "attention.kernel_family",
    "attention.planning_ms",
    "comm.fastest_bus_gb_per_s",
    "data.device_copies_frac",
    "data.h2d_blocking_ms",
    "data.host_copies_frac",
    "kernels.elementwise_frac",
    "kernels.gemm_frac",
    "kernels.matrix_conv_frac",
    "loss.head_gpu_frac",
    "memory.recompute_frac",
    "memory.unsharded_static_frac",
    "optimizer.gpu_frac",
    "optimizer.launches_per_step",
    "precision.cast_gpu_frac",
    "precision.fp32_gemm_frac",
    "precision.gemm_dtype",
    "sync.blocking_frac",
    "sync.device_syncs_per_step",
)


def settled_facts(sheet: SheetBuilder, lead: RankObservation) -> None:
    """What silence means: calls that are always counted and were not made, facts that need a GPU."""
    steps = len(lead.steps)
    if lead.counters and steps:
        for fact, counter in _COUNTED.items():
            calls = lead.counters.get(counter, 0.0)
            sheet.put(fact, calls / steps, "probe, calls", f"{steps} steps, rank 0")
        filled = lead.counters.get("zero_grad_to_zeros", 0.0) > 0
        sheet.put("optimizer.zero_grad_to_zeros", filled, "probe, zero_grad")
    if lead.sharding is None or lead.sharding.kind == "none":
        sheet.not_applicable("memory.parameters_offloaded", "parameters are not sharded")
    if lead.environment.device_type == "cpu":
        for fact in _GPU_ONLY:
            sheet.not_applicable(fact, "the job runs on the CPU")
    else:
        sheet.not_applicable("precision.fp64_step_frac", "the job runs on a GPU")


def checkpoint_estimates(sheet: SheetBuilder) -> None:
    """The peak if every second layer were checkpointed: half way to the peak without checkpointing."""
    without, now = sheet.number("memory.peak_without_checkpointing_frac"), sheet.number("memory.peak_frac")
    if without is not None and now is not None:
        half = now + (without - now) / 2
        sheet.put("memory.peak_every_second_layer_frac", half, "derived", "half of the kept activations")
    elif sheet.value("memory.checkpointing") is not True:
        sheet.not_applicable("memory.peak_every_second_layer_frac", "checkpointing is off")
