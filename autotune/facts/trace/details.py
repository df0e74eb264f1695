"""Smaller facts from a trace: single ops, copies, synchronisations, compiled regions, link speed."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.facts.sheet import SheetBuilder
from autotune.records.trace import RankTrace

_SIZE_FROM_VALUES = ("aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim")
_TINY_BYTES = 1024


def detail_facts(sheet: SheetBuilder, lead: RankTrace, steps: int, basis: str) -> None:
    """Counts per step and shares of GPU time that single rules ask for."""
    source = "trace"
    calls = {row.name: row.calls for row in lead.tables.cpu_ops}

    def per_step(names: Iterable[str]) -> float:
        return sum(calls.get(name, 0) for name in names) / steps

    sheet.put("kernels.cos_calls_per_step", per_step(["aten::cos"]), source, basis)
    sheet.put(
        "kernels.index_add_calls_per_step", per_step(["aten::index_add_", "aten::index_add"]), source, basis
    )
    sheet.put("sync.nonzero_calls_per_step", per_step(_SIZE_FROM_VALUES), source, basis)
    norms = ["aten::linalg_vector_norm", "aten::norm"]
    sheet.put("optimizer.norm_calls_per_step", per_step(norms), source, basis)
    sheet.put("compile.compiled_regions", lead.compile.compiled_regions, source, basis)
    if lead.gpu is None or not lead.gpu.busy_ms:
        return
    busy = lead.gpu.busy_ms
    _gpu_shares(sheet, lead, busy, basis)
    _waits(sheet, lead, steps, basis)
    rows = lead.communication.collectives
    if any(row.bytes is not None for row in rows):
        tiny = sum(row.count for row in rows if row.bytes is not None and row.bytes <= _TINY_BYTES)
        sheet.put("comm.tiny_collectives_per_step", tiny / steps, source, basis)
        speeds = [row.bus_gb_s for row in rows if row.bus_gb_s is not None and (row.bytes or 0) >= 2**24]
        if speeds:
            sheet.put(
                "comm.fastest_bus_gb_per_s", max(speeds), source, "fastest collective of 16 MiB or more"
            )


def _gpu_shares(sheet: SheetBuilder, lead: RankTrace, busy_ms: float, basis: str) -> None:
    source = "trace"
    families = {row.family: row.total_ms for row in lead.attention.families}
    if families:
        sheet.put("attention.kernel_family", max(families, key=lambda name: families[name]), source, basis)
    conv = lead.convolution.depthwise_kernel_ms + lead.convolution.causal_conv_kernel_ms
    sheet.put("kernels.causal_conv_gpu_frac", min(1.0, conv / busy_ms), source, basis)
    casts = [row for row in lead.tables.gpu_kernels if "direct_copy_kernel" in row.name]
    copied = sum(row.total_ms for row in casts)
    sheet.put("precision.cast_gpu_frac", min(1.0, copied / busy_ms), source, basis)
    total = sum(row.total_ms for row in lead.gemm)
    double = sum(row.total_ms for row in lead.gemm if row.dtype == "fp64")
    if total:
        sheet.put("precision.fp64_gemm_frac", double / total, source, basis)
    by_direction = {"HtoD": 0.0, "DtoH": 0.0, "DtoD": 0.0}
    for row in lead.copies:
        if row.direction in by_direction:
            by_direction[row.direction] += row.total_ms
    host = by_direction["HtoD"] + by_direction["DtoH"]
    sheet.put("data.host_copies_frac", min(1.0, host / busy_ms), source, basis)
    sheet.put("data.device_copies_frac", min(1.0, by_direction["DtoD"] / busy_ms), source, basis)


def _waits(sheet: SheetBuilder, lead: RankTrace, steps: int, basis: str) -> None:
    if lead.syncs is None or lead.gpu is None:
        return
    share = lead.syncs.blocking_ms / lead.gpu.span_ms if lead.gpu.span_ms else None
    sheet.put(
        "sync.blocking_frac", min(1.0, share) if share is not None else None, "trace", basis + ", profiled"
    )
    whole = sum(row.count for row in lead.syncs.rows if row.call.endswith("DeviceSynchronize"))
    sheet.put("sync.device_syncs_per_step", whole / steps, "trace", basis)
