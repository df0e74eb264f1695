"""Launch facts: how busy the GPU is, and whether it waits for work to be launched."""

from __future__ import annotations

from autotune.facts.sheet import SheetBuilder
from autotune.records.observation import Observation
from autotune.records.trace import RankTrace


def launch_facts(
    sheet: SheetBuilder, lead: RankTrace, steps: int, basis: str, observation: Observation | None
) -> None:
    """Busy share against the unprofiled step, counts per step, starvation of the launch queue."""
    tables = lead.tables
    sheet.put("launch.cpu_ops_per_step", tables.cpu_calls / steps, "trace", basis)
    sheet.put("host.op_frac", lead.cpu.main_thread_busy_frac, "trace", basis + ", profiled")
    if lead.cpu.main_thread_training_frac is not None:
        value = lead.cpu.main_thread_training_frac
        sheet.put("host.op_or_backward_frac", value, "trace", basis + ", profiled")
    unprofiled_ms = sheet.number("run.step_ms")
    if unprofiled_ms:
        sheet.put("host.ops_per_ms", tables.cpu_calls / steps / unprofiled_ms, "trace and probe", basis)
    gpu = lead.gpu
    if gpu is None:
        reason = "the trace has no GPU work"
        for fact in (
            "launch.gpu_busy_frac",
            "launch.kernels_per_step",
            "launch.median_kernel_us",
            "launch.starved_frac",
            "launch.queue_full_ms",
            "launch.idle_profiled_frac",
            "launch.bound",
        ):
            if observation is not None and all(r.environment.device_type == "cpu" for r in observation.ranks):
                sheet.not_applicable(fact, "the job runs on the CPU")
            else:
                sheet.absent(fact, reason)
        return
    sheet.put("launch.kernels_per_step", tables.gpu_kernel_count / steps, "trace", basis)
    sheet.put("launch.median_kernel_us", tables.median_kernel_us, "trace", basis)
    dropped = lead.validity.has("dropped_records")
    if dropped:
        sheet.absent("launch.idle_profiled_frac", "records are missing from the trace, so gaps mean nothing")
        sheet.absent("launch.starved_frac", "records are missing from the trace, so gaps mean nothing")
        return
    sheet.put("launch.idle_profiled_frac", gpu.idle_frac, "trace", basis + ", profiled")
    if lead.launch is not None:
        sheet.put("launch.starved_frac", lead.launch.started_at_once_frac, "trace", basis)
    step_ms = sheet.number("run.step_ms")
    if step_ms:
        busy = gpu.busy_ms / steps / step_ms
        how = f"GPU busy time of {basis} over the median unprofiled step"
        sheet.put("launch.gpu_busy_frac", min(1.0, busy), "trace and probe", how)
