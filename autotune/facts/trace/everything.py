"""Facts a trace brings: one profiled window per rank, counts per step."""

from __future__ import annotations

from autotune.facts.sheet import SheetBuilder
from autotune.facts.trace.details import detail_facts
from autotune.facts.trace.launch import launch_facts
from autotune.facts.trace.loss import loss_facts
from autotune.facts.trace.parts import (
    attention_facts,
    communication_facts,
    copy_facts,
    kernel_facts,
    memory_facts,
    optimizer_facts,
    precision_facts,
)
from autotune.records.observation import Observation
from autotune.records.trace import RankTrace, TraceSummary


def trace_facts(sheet: SheetBuilder, traces: TraceSummary, observation: Observation | None) -> float | None:
    """Fill the sheet from the traces; returns the device's dense peak in TFLOP/s, None when unknown.

    The lowest rank speaks for the job; what needs several ranks uses all of them.
    """
    lead = min(traces.ranks, key=lambda rank: rank.rank if rank.rank is not None else 0)
    steps = max(1, lead.steps.count)
    named = f"rank {lead.rank}" if lead.rank is not None else "one rank"
    basis = f"{steps} profiled step{'s' if steps > 1 else ''} of {named}"
    _run(sheet, lead, traces, observation)
    launch_facts(sheet, lead, steps, basis, observation)
    kernel_facts(sheet, lead, steps, basis)
    attention_facts(sheet, lead, steps, basis)
    optimizer_facts(sheet, lead, steps, basis)
    precision_facts(sheet, lead, basis)
    memory_facts(sheet, lead, basis)
    copy_facts(sheet, lead, steps, basis)
    communication_facts(sheet, lead, traces, steps, basis)
    detail_facts(sheet, lead, steps, basis)
    loss_facts(sheet, lead, steps, basis, observation)
    return _peak(sheet, lead)


def _run(sheet: SheetBuilder, lead: RankTrace, traces: TraceSummary, observation: Observation | None) -> None:
    source = "trace"
    sheet.put("run.has_gpu", lead.gpu is not None, source)
    if observation is None:
        sheet.put(
            "run.is_training", lead.validity.training, source, why="the trace does not show a whole step"
        )
        sheet.put("run.world_size", lead.world_size, source, why="the trace names no world size")
        sheet.put("run.ranks_seen", len(traces.ranks), source)
    if lead.device is None:
        return
    sheet.put("device.name", lead.device.name, source, why="the trace names no device")
    vendor = lead.device.vendor if lead.device.vendor in ("nvidia", "amd") else None
    sheet.put("device.vendor", vendor, source, why="the trace names no device")
    capability = lead.device.compute_capability
    if capability is not None and capability.replace(".", "", 1).isdigit():
        sheet.put("device.compute_capability", float(capability), source)
    sheet.put("memory.device_gib", lead.device.memory_gib, source, why="the trace names no memory size")


def _peak(sheet: SheetBuilder, lead: RankTrace) -> float | None:
    device = lead.device
    if device is None:
        return None
    peaks = {
        "bf16": device.bf16_peak_tflops,
        "fp16": device.bf16_peak_tflops,
        "tf32": device.tf32_peak_tflops,
        "fp32": device.fp32_peak_tflops,
        "fp8": device.fp8_peak_tflops,
    }
    dtype = sheet.value("precision.gemm_dtype")
    # A job that trains in fp32 is measured against what the device could do in bf16: that is its headroom.
    peak = peaks.get(dtype if isinstance(dtype, str) and dtype not in ("fp32", "tf32") else "bf16")
    sheet.put("device.peak_tflops", peak, "table of device peaks", why="this device is not in the table")
    return peak
