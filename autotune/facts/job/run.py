"""Facts about the run as a whole: steps, speed, what interrupts them, how ranks share the work."""

from __future__ import annotations

from collections import Counter
from statistics import median

from autotune.facts.catalogue import catalogue
from autotune.facts.sheet import SheetBuilder
from autotune.facts.steady import step_times, steps_by_index
from autotune.records.observation import Observation, RankObservation

_DTYPE_SHORT = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
}


_FEWEST_BATCHES = 2  # that are equal on all ranks and differ from each other
_SETTLED = 3  # steps after the warm-up that are enough to tell a usual step


def run_facts(sheet: SheetBuilder, observation: Observation, basis: str) -> None:
    ranks = observation.ranks
    times = step_times(observation)
    source = "probe, optimizer steps"
    on_gpu = any(rank.environment.device_type != "cpu" for rank in ranks)
    sheet.put("run.has_gpu", on_gpu, "probe, device of the job")
    sheet.put("run.is_training", any(rank.steps for rank in ranks), source)
    sheet.put("run.world_size", max(rank.world_size for rank in ranks), "probe, process group")
    sheet.put("run.ranks_seen", len(ranks), "probe")
    steps_basis = f"{len(times.durations_ms)} unprofiled steps, slowest of {basis}"
    sheet.put("run.steps_seen", max((len(rank.steps) for rank in ranks), default=0), source, basis)
    sheet.put("run.steps_timed", len(times.durations_ms), source, basis)
    sheet.put("run.step_ms", times.median_ms, source, steps_basis, why="no unprofiled step was seen")
    sheet.put("run.step_spread_frac", times.spread_frac, source, steps_basis)
    sheet.put("run.steady", times.steady, source, steps_basis)
    firsts = [rank.steps[0].duration_ms for rank in ranks if rank.steps]
    sheet.put("run.first_step_ms", max(firsts, default=None), source, basis)
    startups = [rank.startup_s for rank in ranks if rank.startup_s is not None]
    sheet.put("run.startup_s", max(startups, default=None), "probe, first backward", basis)
    sheet.put(
        "run.out_of_memory", any(r.memory.out_of_memory for r in ranks if r.memory), "probe, exceptions"
    )
    sheet.put("run.incomplete", any(r.status in ("exception", "killed") for r in ranks), "probe, exit")
    sheet.put("run.epochs_planned", observation.epochs_planned, "the job's arguments")
    kept = set(times.indices)
    seconds = sum(times.durations_ms) / 1000.0
    real, padded, examples = 0, 0, 0
    known_real = known = counted = bool(kept)
    for index, entries in steps_by_index(observation).items():
        if index not in kept:
            continue
        for _, step in entries:
            known_real &= step.real_tokens is not None
            known &= step.tokens is not None
            counted &= step.examples is not None
            examples += step.examples or 0
            real += step.real_tokens or 0
            padded += step.tokens or 0
    why = "tokens could not be counted on the CPU side of the loader"
    tokens_source = "probe, batches and optimizer steps"
    sheet.put(
        "run.useful_tokens_per_s",
        real / seconds if known_real and seconds else None,
        tokens_source,
        steps_basis,
        why=why,
    )
    sheet.put(
        "run.all_tokens_per_s",
        padded / seconds if known and seconds else None,
        tokens_source,
        steps_basis,
        why=why,
    )
    sheet.put(
        "run.examples_per_s",
        examples / seconds if counted and seconds else None,
        tokens_source,
        steps_basis,
        why="the batches do not show how many examples they hold",
    )


def optimizer_facts(sheet: SheetBuilder, observation: Observation, basis: str) -> None:
    lead = observation.ranks[0]
    source = "probe, optimizer"
    sheet.put("optimizer.count", len(lead.optimizers) or None, source)
    if lead.optimizers:
        main = max(lead.optimizers, key=lambda o: o.parameters)
        sheet.put("optimizer.class_name", main.class_name, source)
        sheet.put("optimizer.implementation", main.implementation, source)
        sheet.put("optimizer.fused_available", main.fused_available, source)
        idle = [o.idle_values for o in lead.optimizers]
        updated = sum(o.parameters for o in lead.optimizers)
        if updated and all(value is not None for value in idle):
            share = sum(value or 0 for value in idle) / updated
            sheet.put("optimizer.idle_values_frac", min(1.0, share), source, "gradients of one step")
    times = step_times(observation)
    spent, shares = [], []
    for index, entries in steps_by_index(observation).items():
        if index in times.indices:
            for _, step in entries:
                if step.optimizer_ms is not None:
                    spent.append(step.optimizer_ms)
                    shares.append(min(1.0, step.optimizer_ms / step.duration_ms))
    over = f"{len(spent)} steps, {basis}"
    sheet.put("optimizer.step_ms", median(spent) if spent else None, "probe, optimizer.step", over)
    sheet.put("optimizer.step_frac", median(shares) if shares else None, "probe, optimizer.step", over)
    zeros = lead.counters.get("zero_grad_to_zeros")
    sheet.put("optimizer.zero_grad_to_zeros", bool(zeros) if zeros is not None else None, "probe, zero_grad")


def sharding_facts(sheet: SheetBuilder, observation: Observation) -> None:
    lead = observation.ranks[0]
    kind = lead.sharding.kind if lead.sharding else "none"
    source = "probe, wrapping calls"
    sheet.put("comm.kind", kind, source)
    _same_batches(sheet, observation)
    if lead.sharding is not None and lead.sharding.broadcast_bytes is not None:
        sent = lead.sharding.broadcast_bytes / max(1, lead.sharding.gradient_bytes or 0)
        sheet.put("comm.broadcast_ratio", sent, source, "constant buffers of the model against its gradients")
        sheet.put("comm.changed_buffers", lead.sharding.changed_buffers, source, "values of the buffers")
    _process_groups(sheet, observation)
    if lead.sharding is not None and lead.sharding.mesh:
        sheet.put("comm.mesh", [str(size) for size in lead.sharding.mesh], source)
    if lead.world_size == 1:
        for fact in catalogue().values():
            if fact.group == "comm" and fact.name not in ("comm.kind", "comm.fsdp_units"):
                sheet.not_applicable(fact.name, "one rank")
    if kind == "none" or lead.sharding is None:
        reason = "parameters and gradients are not spread over ranks"
        for name in ("comm.fsdp_units", "comm.reshard_after_forward", "comm.reduce_dtype"):
            sheet.not_applicable(name, reason)
        return
    if lead.world_size == 1:
        sheet.put("comm.fsdp_units", lead.sharding.units, source)
        return
    sheet.put("comm.fsdp_units", lead.sharding.units, source)
    sheet.put("comm.reshard_after_forward", lead.sharding.reshard_after_forward, source)
    reduce = (lead.sharding.reduce_dtype or "").removeprefix("torch.")
    sheet.put(
        "comm.reduce_dtype", _DTYPE_SHORT.get(reduce), source, why="the policy names no reduction format"
    )
    sheet.put(
        "comm.syncs_per_optimizer_step", lead.sharding.gradient_syncs_per_step, "probe, gradient reductions"
    )


def _same_batches(sheet: SheetBuilder, observation: Observation) -> None:
    """Whether all ranks train on the same values in their first batches.

    Equal batches of the loaders are no proof: a rank may take its part of them, and ranks of a group that
    share one model's layers or positions get the same batch on purpose.
    """
    ranks = observation.ranks
    first = [tuple(tuple(loader.digests) for loader in rank.loaders) for rank in ranks]
    if len(first) < 2 or not all(digests and all(digests) for digests in first):
        return
    count = min(len(digests) for loaders in first for digests in loaders)
    cut = {tuple(digests[:count] for digests in loaders) for loaders in first}
    source, basis = "probe, batches", f"first {count} batches of {len(first)} ranks"
    if len(cut) > 1:
        sheet.put("comm.same_batches", False, source, basis)
        return
    groups = max(sum(group.size > 1 for group in rank.process_groups) for rank in ranks)
    if count < _FEWEST_BATCHES or any(len(set(digests)) < count for digests in next(iter(cut))):
        why = "too few different batches were seen"
    elif groups > 1:
        why = "there are more process groups than the data-parallel one, which may share a batch"
    elif not all(rank.forward is not None and rank.forward.whole_batches for rank in ranks):
        why = "the model is not given the batches as they leave the loader"
    else:
        sheet.put("comm.same_batches", True, source, basis)
        return
    sheet.put("comm.same_batches", None, source, basis, why=why)


def _process_groups(sheet: SheetBuilder, observation: Observation) -> None:
    """Distinct groups over all ranks that reported, equal ones counted."""
    groups = {(g.name, tuple(g.ranks)): g for rank in observation.ranks for g in rank.process_groups}
    kinds = Counter((g.description or g.name, g.backend, g.size) for g in groups.values())
    texts = [
        f"{name}: {size} ranks, {backend}" + (f", {count} groups" if count > 1 else "")
        for (name, backend, size), count in kinds.items()
    ]
    sizes = {group.size for group in groups.values()}
    if len(sizes) == 1:  # whatever was sent went through a group of this size
        sheet.put("comm.group_sizes", [str(size) for size in sizes], "probe, torch.distributed")
    if texts:
        sheet.put("comm.process_groups", texts, "probe, torch.distributed", f"{len(observation.ranks)} ranks")


def sync_facts(sheet: SheetBuilder, observation: Observation) -> None:
    lead = observation.ranks[0]
    if lead.environment.device_type == "cpu":
        for fact in (
            "sync.reads_per_step",
            "sync.trainer_log_reads_per_step",
            "sync.wait_frac",
            "sync.device_copies_per_step",
            "sync.blocking_ms",
        ):
            sheet.not_applicable(fact, "the job runs on the CPU: there is no device to wait for")
        return
    reads = [site for site in observation.sites if site.kind == "device_read"]
    steps = len(lead.steps)
    if not steps:
        return
    source, over = "probe, reads of device tensors in user code", f"{steps} steps, rank 0"
    logged = lead.counters.get("trainer_log_reads", 0.0)
    sheet.put("sync.reads_per_step", (sum(site.calls for site in reads) + logged) / steps, source, over)
    if lead.counters:
        sheet.put("sync.trainer_log_reads_per_step", logged / steps, "probe, the Trainer's logging", over)
    spent = [site.total_ms for site in reads if site.total_ms is not None]
    if logged:
        spent.append(lead.counters.get("trainer_log_wait_ms", 0.0))
    total = sum(step.duration_ms for step in lead.steps)
    if total and (spent or not reads):
        sheet.put("sync.wait_frac", min(1.0, sum(spent) / total), source, over)


def _beside(sheet: SheetBuilder, observation: Observation) -> None:
    """What the loop does besides training: its share of a step, and the values it reads there."""
    lead = observation.ranks[0]
    timed = set(step_times(observation).indices)
    shares = [
        min(1.0, step.beside_ms / step.duration_ms)
        for step in lead.steps
        if step.beside_ms is not None and step.duration_ms and step.index in timed
    ]
    if shares:
        basis = f"{len(shares)} steps, rank {lead.rank}"
        sheet.put("stall.beside_frac", median(shares), "probe, backward, optimizer and loader", basis)
    if lead.counters:
        reads = lead.counters.get("loop_reads", 0.0) / len(lead.steps)
        sheet.put(
            "stall.values_read_per_step", reads, "probe, reads in user code", f"{len(lead.steps)} steps"
        )


def _pauses(sheet: SheetBuilder, lead: RankObservation, source: str, basis: str) -> None:
    """Saves and evaluations: how many, and their time per step against that of a step without them.

    The first step and what comes before it happen once, and profiled steps are longer than others. Slow steps
    of the warm-up say nothing of the step without a pause, where enough others were seen.
    """
    usual = [s for s in lead.steps if not {"first", "profiled", "after_profile"} & set(s.tags)]
    inside: dict[int, Counter[str]] = {step.index: Counter() for step in usual}
    seen: Counter[str] = Counter()
    for phase in lead.phases:
        for step in usual:
            if step.end_s - step.duration_ms / 1000.0 <= phase.start_s < step.end_s:
                inside[step.index][phase.kind] += phase.duration_ms  # type: ignore[assignment]
                seen[phase.kind] += 1
    sheet.put("stall.evaluations_seen", seen["evaluation"], source, basis)
    sheet.put("stall.saves_seen", seen["checkpoint"], source, basis)
    if not usual:
        return
    settled = [step for step in usual if "warmup" not in step.tags]
    own = [
        max(0.0, step.duration_ms - inside[step.index]["checkpoint"] - inside[step.index]["evaluation"])
        for step in (settled if len(settled) >= _SETTLED else usual)
    ]
    for fact, kind in (("stall.checkpoint_frac", "checkpoint"), ("stall.evaluation_frac", "evaluation")):
        paused_ms = sum(counts[kind] for counts in inside.values()) / len(usual)
        whole_ms = paused_ms + median(own)
        sheet.put(fact, paused_ms / whole_ms if whole_ms else 0.0, source, basis)


def stall_facts(sheet: SheetBuilder, observation: Observation) -> None:
    lead = observation.ranks[0]
    source = "probe, phases of the run"
    steps = len(lead.steps)
    if not steps:
        return
    basis = f"{steps} steps, rank 0"
    _pauses(sheet, lead, source, basis)
    _beside(sheet, observation)
    spent = sum(phase.duration_ms for phase in lead.phases if phase.kind == "gc")
    sheet.put("stall.gc_ms_per_step", spent / steps, source, basis)
    for fact, counter in (
        ("stall.gc_collects_per_step", "gc_collect"),
        ("memory.empty_cache_per_step", "empty_cache"),
    ):
        if counter in lead.counters:
            sheet.put(fact, lead.counters[counter] / steps, "probe, calls", basis)
    for fact, counter in (("compile.recompiles", "recompiles"), ("compile.graph_breaks", "graph_breaks")):
        if counter in lead.counters:
            sheet.put(fact, int(lead.counters[counter]), "probe, torch.compile counters", basis)
    jit = sum("compile" in step.tags for step in lead.steps)
    sheet.put("compile.jit_steps_frac", jit / steps, "probe, compile activity", basis)
