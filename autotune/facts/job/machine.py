"""Facts about the machine, its software, its memory and the switches that are on."""

from __future__ import annotations

from collections import Counter
from statistics import median

from autotune.facts.sheet import SheetBuilder
from autotune.records.observation import DeviceSample, Observation, RankObservation

_GIB = 1024.0**3
_SAMPLED = (
    "device.throttled_frac", "device.throttle_reasons", "device.utilisation_frac", "device.sm_clock_frac",
    "device.power_w", "device.temperature_c", "device.memory_used_gib", "device.foreign_processes",
)  # fmt: skip


def device_facts(sheet: SheetBuilder, observation: Observation, lead: RankObservation) -> None:
    environment = lead.environment
    source = "probe, device properties"
    name = environment.device_name or ("CPU" if environment.device_type == "cpu" else None)
    sheet.put("device.name", name, source)
    lowered = (name or "").lower()
    if environment.device_type == "cpu":
        vendor = "cpu"
    elif "amd" in lowered or "instinct" in lowered or lowered.startswith("mi"):
        vendor = "amd"
    elif environment.compute_capability is not None:
        vendor = "nvidia"
    else:
        vendor = "other"
    sheet.put("device.vendor", vendor, source)
    if environment.device_type == "cpu":
        for fact in ("device.compute_capability", *_SAMPLED):
            sheet.not_applicable(fact, "the job runs on the CPU")
        return
    sheet.put("device.count", environment.device_count, source)
    sheet.put("device.compute_capability", environment.compute_capability, source)
    _sampled_facts(sheet, _during_steps(observation))


def _sampled_facts(sheet: SheetBuilder, samples: list[DeviceSample]) -> None:
    """What the samples during the steps say; a value no GPU told stays absent."""
    basis = f"{len(samples)} samples during the steps"
    told = [s.throttle_reasons for s in samples if s.throttle_reasons is not None]
    sheet.put("device.throttled_frac", sum(map(bool, told)) / len(told) if told else None, "NVML", basis)
    reasons = Counter(reason for given in told for reason in given)
    shares = [f"{name.replace('_', ' ')} ({n / len(told):.0%})" for name, n in reasons.most_common()]
    sheet.put("device.throttle_reasons", shares if told else None, "NVML", basis)
    power = [s.power_w for s in samples if s.power_w is not None]
    sheet.put("device.power_w", median(power) if power else None, "NVML", basis)
    heat = [s.temperature_c for s in samples if s.temperature_c is not None]
    sheet.put("device.temperature_c", max(heat, default=None), "NVML", basis)
    memory = [s.memory_used_gib for s in samples if s.memory_used_gib is not None]
    sheet.put("device.memory_used_gib", max(memory, default=None), "NVML", basis)
    used = [s.utilisation_frac for s in samples if s.utilisation_frac is not None]
    sheet.put("device.utilisation_frac", sum(used) / len(used) if used else None, "NVML", basis)
    clocks = [s.sm_clock_mhz / s.sm_clock_max_mhz for s in samples if s.sm_clock_mhz and s.sm_clock_max_mhz]
    sheet.put("device.sm_clock_frac", median(clocks) if clocks else None, "NVML", basis)
    foreign = [s.foreign_processes for s in samples if s.foreign_processes is not None]
    sheet.put("device.foreign_processes", max(foreign, default=None), "NVML", basis)


def _during_steps(observation: Observation) -> list[DeviceSample]:
    """Samples between the first and the last unprofiled step; start-up says nothing about the training."""
    steps = [s for rank in observation.ranks for s in rank.steps if not {"first", "profiled"} & set(s.tags)]
    if not steps:
        return observation.device_samples
    begin = min(step.end_s - step.duration_ms / 1000.0 for step in steps)
    end = max(step.end_s for step in steps)
    return [sample for sample in observation.device_samples if begin <= sample.at_s <= end]


def environment_facts(sheet: SheetBuilder, lead: RankObservation, observation: Observation) -> None:
    environment = lead.environment
    source = "probe, installed packages"
    sheet.put("env.python", environment.python, source)
    sheet.put("env.torch", environment.torch, source)
    sheet.put("env.cuda", environment.cuda, source, why="torch was built without CUDA")
    packages = {name.replace("_", "-").lower(): version for name, version in environment.packages.items()}
    for fact, package in (
        ("env.transformers", "transformers"),
        ("env.triton", "triton"),
        ("env.flash_linear_attention", "flash-linear-attention"),
        ("env.causal_conv1d", "causal-conv1d"),
        ("env.flash_attention", "flash-attn"),
    ):
        if package in packages:
            sheet.put(fact, packages[package], source)
        else:
            sheet.not_applicable(fact, f"{package} is not installed")
    threads = environment.cpu_threads
    sheet.put("env.cpu_threads_per_rank", threads, "probe, torch threads")
    cores = environment.cpu_cores
    if threads and cores:
        local = max(1, len(observation.ranks))
        sheet.put("data.cpu_cores_per_rank", cores / local, "probe, CPU affinity and quota")
        over = threads * local > cores * (1.01 if local > 1 else 1.25)
        sheet.put(
            "env.cpu_threads_oversubscribed", over, "probe, torch threads", f"{local} ranks, {cores:g} cores"
        )
    kind = observation.trainer_kind or ("plain" if lead.steps else None)
    sheet.put("trainer.kind", kind, "probe, trainer objects seen (none: a plain loop)")
    sheet.put("trainer.carrier", observation.carrier, "probe, constructor calls")


def debug_facts(sheet: SheetBuilder, lead: RankObservation) -> None:
    flags = lead.flags
    if flags is None:
        return
    source = "probe, torch settings and environment"
    values = {
        "debug.anomaly_detection": flags.anomaly_detection,
        "debug.launch_blocking": flags.launch_blocking,
        "debug.deterministic": flags.deterministic,
        "debug.debugger": flags.debugger,
        "debug.profiler_left_on": flags.profiler_active,
        "debug.torch_logs": bool(flags.verbose_logs),
    }
    for name, value in values.items():
        sheet.put(name, value, source)
    on = [name.removeprefix("debug.") for name, value in values.items() if value]
    sheet.put("debug.flags_on", on, source)


def memory_facts(sheet: SheetBuilder, observation: Observation, basis: str) -> None:
    ranks = [rank for rank in observation.ranks if rank.memory is not None]
    source = "probe, allocator statistics"
    lead = observation.ranks[0]
    if lead.checkpointing is not None:
        record = lead.checkpointing
        how = "probe, checkpoint calls"
        sheet.put("memory.checkpointing", record.enabled, how)
        if record.enabled:
            sheet.put("memory.checkpointing_kind", record.kind, how)
            sheet.put("memory.checkpointing_reentrant", record.reentrant, how)
            sheet.put("memory.checkpointed_layers", record.layers, how)
        else:
            for fact in (
                "memory.checkpointing_kind",
                "memory.checkpointing_reentrant",
                "memory.checkpointed_layers",
            ):
                sheet.not_applicable(fact, "checkpointing is off")
    _host_memory(sheet, ranks)
    if lead.environment.device_type == "cpu":
        for fact in (
            "memory.device_gib",
            "memory.peak_reserved_gib",
            "memory.peak_allocated_gib",
            "memory.peak_frac",
        ):
            sheet.not_applicable(fact, "the job runs on the CPU")
        sheet.not_applicable("memory.allocator_retries", "the job runs on the CPU")
        return
    reserved = [r.memory.peak_reserved_bytes for r in ranks if r.memory and r.memory.peak_reserved_bytes]
    allocated = [r.memory.peak_allocated_bytes for r in ranks if r.memory and r.memory.peak_allocated_bytes]
    totals = [r.memory.device_bytes for r in ranks if r.memory and r.memory.device_bytes]
    sheet.put("memory.peak_reserved_gib", max(reserved) / _GIB if reserved else None, source, basis)
    sheet.put("memory.peak_allocated_gib", max(allocated) / _GIB if allocated else None, source, basis)
    sheet.put("memory.device_gib", min(totals) / _GIB if totals else None, source, basis)
    if reserved and totals:
        sheet.put("memory.peak_frac", max(reserved) / min(totals), source, basis)
    retries = [
        r.memory.allocator_retries for r in ranks if r.memory and r.memory.allocator_retries is not None
    ]
    sheet.put("memory.allocator_retries", max(retries, default=None), source, basis)
    _static_memory(sheet, lead)


def _host_memory(sheet: SheetBuilder, ranks: list[RankObservation]) -> None:
    """Of the host of the ranks that report; ranks of other hosts do not."""
    totals = [r.memory.host_bytes for r in ranks if r.memory and r.memory.host_bytes]
    used = [r.memory.host_peak_rss_bytes for r in ranks if r.memory and r.memory.host_peak_rss_bytes]
    if totals and len(used) == len(ranks):
        how = "probe, resident memory"
        sheet.put("memory.host_gib", min(totals) / _GIB, how)
        sheet.put("memory.host_peak_frac", min(1.0, sum(used) / min(totals)), how, f"{len(used)} ranks")


def _static_memory(sheet: SheetBuilder, lead: RankObservation) -> None:
    model = lead.model
    state = sum(o.state_bytes or 0 for o in lead.optimizers)
    if model is None or model.local_parameter_bytes is None or not state:
        return
    trainable = model.trainable_parameters / model.parameters if model.parameters else 1.0
    static = model.local_parameter_bytes * (1.0 + trainable) + state
    sheet.put(
        "memory.static_gib", static / _GIB, "derived from parameter and optimizer state bytes", "rank 0"
    )
    peak = sheet.number("memory.peak_allocated_gib")
    if peak is not None:
        sheet.put(
            "memory.activation_gib", max(0.0, peak - static / _GIB), "derived from the allocator's peak"
        )
