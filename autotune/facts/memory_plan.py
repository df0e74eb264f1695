"""Facts of a memory plan under trial: what a measuring launch found and what the plan asks for."""

from __future__ import annotations

from autotune.facts.sheet import SheetBuilder
from autotune.records.facts import FactSheet, FactValue

_MEASURED = "measured in a launch of its own, longest batch first"
_PLANNED = "the memory plan under trial"
_GIB = 1024.0**3


def no_plan(sheet: SheetBuilder) -> None:
    """What a plan could not change in this job; the rest stays absent until a loop measures."""
    checkpointing = sheet.value("memory.checkpointing") is not False
    micro = sheet.number("data.accumulation_steps")
    accumulates = micro is None or micro >= 2
    if not checkpointing and (not accumulates or sheet.value("run.has_gpu") is False):
        for fact in ("memory.plan_checkpointed_layers", "memory.block_gib"):
            sheet.not_applicable(fact, "checkpointing is off")
    if not accumulates:
        for fact in ("memory.micro_batch", "memory.plan_micro_batch", "memory.plan_accumulation"):
            sheet.not_applicable(fact, "one micro-batch is a step")
    if not checkpointing and not accumulates:
        sheet.not_applicable("memory.plan_peak_frac", "there is nothing to plan")


def planned(
    facts: dict[str, FactValue],
    *,
    layers: int,
    checkpointed: int | None,
    micro_batch: int | None,
    times: int,
    accumulation: int,
    peak_frac: float,
    block_bytes: int | None,
) -> FactSheet:
    """The facts of a run with one plan's numbers.

    As the job is: `layers` are checkpointed, a micro-batch has `micro_batch` examples, a step `accumulation`.
    """
    sheet = SheetBuilder()
    if checkpointed is not None:
        if layers:
            sheet.put("memory.checkpointed_layers", layers, _MEASURED)
        sheet.put("memory.plan_checkpointed_layers", checkpointed, _PLANNED)
    if block_bytes is not None:
        sheet.put("memory.block_gib", block_bytes / _GIB, _MEASURED)
    if times > 1 and micro_batch is not None:
        sheet.put("memory.micro_batch", micro_batch, "the job's settings")
        sheet.put("memory.plan_micro_batch", micro_batch * times, _PLANNED)
        sheet.put("memory.plan_accumulation", accumulation // times, _PLANNED)
    sheet.put("memory.plan_peak_frac", peak_frac, _PLANNED)
    new = {name: fact for name, fact in sheet.sheet().facts.items() if fact.state == "value"}
    return FactSheet(facts={**facts, **new})
