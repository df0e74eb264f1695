"""Facts about single mechanisms in a trace: kernels, attention, optimizer, formats, memory, communication."""

from __future__ import annotations

from autotune.facts.sheet import SheetBuilder
from autotune.records.trace import RankTrace, TraceSummary
from autotune.records.trace_comm import Communication

_ELEMENTWISE = ("elementwise", "norm", "reduction", "softmax", "rope", "fill", "cat")


_EAGER_OPS = {
    "aten::_softmax",
    "aten::_softmax_backward_data",
    "aten::bmm",
    "aten::baddbmm",
    "aten::mul",
    "aten::add",
    "aten::add_",
    "aten::div",
    "aten::copy_",
    "aten::masked_fill",
    "aten::masked_fill_",
    "aten::where",
}


def class_share(lead: RankTrace, *names: str) -> float:
    """Share of the summed GPU time in these kernel classes."""
    return sum(row.share_frac for row in lead.classes if row.name in names)


def kernel_facts(sheet: SheetBuilder, lead: RankTrace, steps: int, basis: str) -> None:
    """Special layers' kernels, matrix products, elementwise work."""
    source = "trace"
    linear, conv = lead.linear_attention, lead.convolution
    solves = (
        linear.triangular_solves + linear.clone_loop_calls
    )  # transformers before 5.17 substitutes row by row
    sheet.put("kernels.fallback_solves_per_step", solves / steps, source, basis)
    if lead.gpu is None:
        return
    sheet.put("kernels.linear_attention_fast_kernels", linear.fast_kernels / steps, source, basis)
    sheet.put("kernels.causal_conv_fallback_kernels", conv.depthwise_kernels / steps, source, basis)
    sheet.put("kernels.causal_conv_fast_kernels", conv.causal_conv_kernels / steps, source, basis)
    linear_ms = linear.fast_kernel_ms + linear.fallback_gpu_ms
    if lead.gpu.busy_ms:
        share = min(1.0, linear_ms / lead.gpu.busy_ms)
        sheet.put("kernels.linear_attention_gpu_frac", share, source, basis)
    fp32 = sum(row.count for row in lead.gemm if row.dtype == "fp32")
    sheet.put("kernels.small_fp32_gemms_per_step", fp32 / steps, source, basis)
    sheet.put("kernels.gemm_frac", class_share(lead, "gemm"), source, basis)
    if conv.matrix_ms is not None:
        total = sum(row.total_ms for row in lead.classes)
        sheet.put("kernels.matrix_conv_frac", conv.matrix_ms / total if total else 0.0, source, basis)
    sheet.put("kernels.elementwise_frac", _elementwise(lead), source, basis)
    sheet.put("kernels.unclassified_frac", lead.unclassified_frac, source, basis)
    sheet.put("loss.head_gpu_frac", class_share(lead, "loss", "softmax"), source, basis)


def _elementwise(lead: RankTrace) -> float:
    """Passes over the logits are elementwise work as well, but a fused loss saves them, not a fused layer."""
    total_ms = sum(row.total_ms for row in lead.classes)
    passes_ms = lead.loss_head.passes_ms if lead.loss_head is not None else 0.0
    logits = passes_ms / total_ms if total_ms else 0.0
    return max(0.0, class_share(lead, *_ELEMENTWISE) - logits)


def attention_facts(sheet: SheetBuilder, lead: RankTrace, steps: int, basis: str) -> None:
    """Which attention ran, and whether a mask reached it."""
    source = "trace"
    attention = lead.attention
    known = attention.mask_passed + attention.mask_absent
    if known:
        sheet.put("attention.mask_passed", attention.mask_passed > 0, source, f"{known} calls, {basis}")
    backends = dict(attention.backends)
    if attention.eager_softmax_calls and not backends:
        sheet.put("attention.backend", "eager", source, basis)
    elif backends:
        sheet.put("attention.backend", max(backends, key=lambda name: backends[name]), source, basis)
    if lead.gpu is not None:
        sheet.put("attention.gpu_frac", class_share(lead, "attention"), source, basis)
        sheet.put("attention.planning_ms", attention.planning_ms / steps, source, basis + ", profiled")
        return
    eager = attention.eager_softmax_calls > 0 and not backends
    rows = [row for row in lead.tables.cpu_ops if _attends(row.name, eager)]
    if lead.cpu.op_self_ms:
        spent = sum(row.self_ms for row in rows)
        sheet.put("attention.cpu_frac", min(1.0, spent / lead.cpu.op_self_ms), source, basis)


def _attends(op: str, eager: bool) -> bool:
    """Whether a CPU op may belong to attention; for the eager implementation an upper estimate.

    Batched products are its two matrix products (projections are plain ones), and the operations on every
    pair of tokens outweigh those on every token.
    """
    if "attention" in op.lower():
        return True
    return eager and op in _EAGER_OPS


def optimizer_facts(sheet: SheetBuilder, lead: RankTrace, steps: int, basis: str) -> None:
    """How the optimizer's update runs."""
    optimizer = lead.optimizer
    if optimizer.implementation is not None:
        name = {"for_loop": "for-loop"}.get(optimizer.implementation, optimizer.implementation)
        sheet.put("optimizer.implementation", name, "trace", basis)
    if optimizer.name:
        sheet.put("optimizer.class_name", optimizer.name, "trace", basis)
    if lead.gpu is None or not optimizer.steps:
        return
    sheet.put("optimizer.launches_per_step", optimizer.launches / steps, "trace", basis)
    if lead.gpu.busy_ms:
        share = min(1.0, optimizer.gpu_ms / lead.gpu.busy_ms)
        sheet.put("optimizer.gpu_frac", share, "trace", basis)


def precision_facts(sheet: SheetBuilder, lead: RankTrace, basis: str) -> None:
    """Formats of the matrix products by GPU time."""
    total = sum(row.total_ms for row in lead.gemm)
    named = {
        row.dtype: row.total_ms for row in lead.gemm if row.dtype in ("fp32", "tf32", "bf16", "fp16", "fp8")
    }
    _one_hot(sheet, lead, basis)
    if lead.gpu is None:
        _double_on_cpu(sheet, lead, basis)
    if lead.gpu is None or not total or not named:
        return
    sheet.put("precision.gemm_dtype", max(named, key=lambda dtype: named[dtype]), "trace", basis)
    sheet.put("precision.fp32_gemm_frac", named.get("fp32", 0.0) / total, "trace", basis)


def _one_hot(sheet: SheetBuilder, lead: RankTrace, basis: str) -> None:
    """Products with a one-hot matrix, against the GPU's busy time or the profiled step on a CPU."""
    work = lead.flops
    whole_ms = lead.gpu.busy_ms if lead.gpu is not None else lead.cpu.span_ms
    if work is None or not whole_ms:
        return
    share = min(1.0, (work.one_hot_ms or 0.0) / whole_ms)
    sheet.put("kernels.one_hot_frac", share, "trace, shapes of products", basis)
    if work.one_hot_classes is not None:
        sheet.put("kernels.one_hot_classes", work.one_hot_classes, "trace, aten::one_hot", basis)
    else:
        sheet.not_applicable("kernels.one_hot_classes", "no one-hot matrix is made")


def _double_on_cpu(sheet: SheetBuilder, lead: RankTrace, basis: str) -> None:
    work = lead.flops
    if work is None or work.fp64_ms is None or not work.counted_ms or not lead.cpu.span_ms:
        for name in ("precision.fp64_gemm_frac", "precision.fp64_step_frac"):
            sheet.absent(name, "the trace holds no products with shapes")
        return
    source = "trace, types of the inputs"
    sheet.put("precision.fp64_gemm_frac", min(1.0, work.fp64_ms / work.counted_ms), source, basis)
    share = min(1.0, work.fp64_ms / lead.cpu.span_ms)
    sheet.put("precision.fp64_step_frac", share, source, basis + ", profiled")


def memory_facts(sheet: SheetBuilder, lead: RankTrace, basis: str) -> None:
    """Recomputation, and the peak where the profiler recorded memory."""
    recompute = lead.recompute
    sheet.put("memory.checkpointing", recompute.detected, "trace", basis, why="no backward pass in the trace")
    if recompute.detected is False:
        sheet.not_applicable("memory.recompute_frac", "checkpointing is off")
    elif recompute.detected and lead.gpu is not None and lead.gpu.busy_ms:
        share = min(1.0, recompute.gpu_ms / lead.gpu.busy_ms)
        sheet.put("memory.recompute_frac", share, "trace", basis)
    elif recompute.detected and lead.gpu is None:
        again = sum(row.cpu_ms for row in lead.regions if row.region == "recompute")
        # region times nest: the recomputation is part of the backward's
        spent = sum(row.cpu_ms for row in lead.regions if row.region not in ("recompute", "other"))
        if spent:
            sheet.put("memory.recompute_frac", min(1.0, again / spent), "trace", basis + ", CPU time")
    if lead.memory is not None:
        sheet.put("memory.peak_allocated_gib", lead.memory.peak_allocated_gib, "trace", basis)
        sheet.put("memory.peak_reserved_gib", lead.memory.peak_reserved_gib, "trace", basis)


def copy_facts(sheet: SheetBuilder, lead: RankTrace, steps: int, basis: str) -> None:
    """Copies between host and device, waits of the host."""
    if lead.gpu is None:
        return
    to_device = [row for row in lead.copies if row.direction.lower() in ("htod", "host to device")]
    pageable = [row for row in to_device if row.pageable]
    sheet.put("data.h2d_blocking_ms", sum(row.total_ms for row in pageable) / steps, "trace", basis)
    if lead.syncs is not None:
        sheet.put("sync.device_copies_per_step", lead.syncs.device_to_host_copies / steps, "trace", basis)
        sheet.put("sync.blocking_ms", lead.syncs.blocking_ms / steps, "trace", basis)
    if lead.data_loading.calls and sheet.number("data.loader_wait_frac") is None:
        share = lead.data_loading.share_frac
        sheet.put("data.loader_wait_frac", share, "trace", basis + ", profiled")


def communication_facts(
    sheet: SheetBuilder, lead: RankTrace, traces: TraceSummary, steps: int, basis: str
) -> None:
    """Collectives, and how much of them nothing hides."""
    comm = lead.communication
    source = "trace"
    _volume(sheet, comm, lead.gpu is not None, steps, basis)
    if lead.gpu is None:
        if comm.present:
            sheet.put(
                "comm.collectives_per_step", comm.host_calls / steps, source, basis + ", calls on the CPU"
            )
        return
    if not comm.present:
        if lead.world_size == 1 or sheet.number("run.world_size") == 1:
            for fact in ("total_ms", "exposed_ms", "exposed_frac", "overlap_frac", "waiting_ms"):
                sheet.not_applicable(f"comm.{fact}", "one rank")
        elif comm.host_ops:
            sheet.absent(
                "comm.exposed_frac", "collectives were called, but no kernel of theirs is in the trace"
            )
        else:
            sheet.put("comm.total_ms", 0.0, source, basis)
            sheet.put("comm.exposed_ms", 0.0, source, basis)
            sheet.put("comm.exposed_frac", 0.0, source, basis)
            sheet.put("comm.waiting_ms", 0.0, source, basis)
        return
    sheet.put("comm.total_ms", _per(comm.union_ms, steps), source, basis)
    sheet.put("comm.exposed_ms", _per(comm.exposed_ms, steps), source, basis)
    sheet.put("comm.exposed_frac", comm.exposed_frac, source, basis)
    sheet.put("comm.overlap_frac", comm.overlap_frac, source, basis)
    sheet.put("comm.collectives_per_step", comm.kernels / steps, source, basis)
    if comm.collectives:
        # A kernel of a collective runs while it waits: what equal calls take beyond the fastest is waiting.
        waiting = sum(
            min(row.exposed_ms, max(0.0, row.total_ms - row.count * row.fastest_ms))
            for row in comm.collectives
        )
        waiting = min(waiting, comm.exposed_ms or 0.0)  # calls beside each other are exposed once
        sheet.put("comm.waiting_ms", waiting / steps, source, f"{basis}, against the fastest of equal calls")
        worst = max(comm.collectives, key=lambda row: row.exposed_ms)
        sheet.put("comm.main_collective", worst.kind, source, basis)
    sheet.put("comm.wait_known", comm.wait_or_transfer == "split", source, f"{len(traces.ranks)} ranks")
    if traces.cross_rank is not None:
        sheet.put(
            "comm.slowest_rank", traces.cross_rank.late_rank, "traces of all ranks", why="no rank is late"
        )
        loads = sorted(load.compute_ms for load in traces.cross_rank.ranks)
        usual = loads[(len(loads) - 1) // 2] if loads else 0.0  # of two ranks the faster one
        if usual:
            skew = loads[-1] / usual - 1.0
            sheet.put("comm.rank_skew_frac", skew, "traces of all ranks", f"{len(loads)} ranks")


def _volume(sheet: SheetBuilder, comm: Communication, on_gpu: bool, steps: int, basis: str) -> None:
    """Bytes and group sizes of the collectives: of the kernels, on the CPU of the calls."""
    if on_gpu:
        sizes = [row.bytes * row.count for row in comm.collectives if row.bytes is not None]
        total = sum(sizes) if sizes else None
        groups = sorted({row.group_size for row in comm.collectives if row.group_size})
    else:
        total, groups = comm.host_bytes, comm.host_group_sizes
    if total is not None:
        sheet.put("comm.gib_per_step", total / steps / 2**30, "trace", basis)
    if groups:
        sheet.put("comm.group_sizes", [str(size) for size in groups], "trace", basis)


def _per(total: float | None, steps: int) -> float | None:
    return None if total is None else total / steps
