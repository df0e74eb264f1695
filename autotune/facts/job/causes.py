"""Facts that name a cause: recompile reasons, hub kernels that do not run, where loading time goes."""

from __future__ import annotations

from autotune.facts.sheet import SheetBuilder
from autotune.records.observation import Observation, RankObservation


def cause_facts(sheet: SheetBuilder, observation: Observation) -> None:
    """From the lead rank; put before the facts that only infer the same from settings."""
    lead = observation.ranks[0]
    _compile(sheet, lead)
    _hub_kernels(sheet, lead)
    _loading(sheet, lead)
    _calls(sheet, observation)
    total_ms = sum(step.duration_ms for step in lead.steps)
    if total_ms and lead.counters:
        spent_ms = lead.counters.get("log_ms", 0.0)
        sheet.put(
            "stall.log_frac", min(1.0, spent_ms / total_ms), "probe, logging calls and prints", _over(lead)
        )
    if observation.launcher is not None:
        known = ("python", "torchrun", "accelerate", "deepspeed", "trl", "srun")
        launcher = observation.launcher if observation.launcher in known else "other"
        sheet.put("trainer.launcher", launcher, "the command line")


def _over(lead: RankObservation) -> str:
    return f"{len(lead.steps)} steps, rank {lead.rank}"


def _compile(sheet: SheetBuilder, lead: RankObservation) -> None:
    source = "probe, torch.compile's own records"
    for fact, kind, counter in (
        ("compile.recompile_reasons", "recompile", "recompiles"),
        ("compile.graph_break_reasons", "graph-break", "graph_breaks"),
    ):
        found = sorted((r for r in lead.compile_reasons if r.kind == kind), key=lambda r: -r.count)
        if found or counter in lead.counters:
            sheet.put(fact, [_reason(r.function, r.reason, r.count) for r in found], source)
        elif lead.counters and lead.model is not None and not lead.model.compiled:
            sheet.not_applicable(fact, "nothing is compiled")


def _reason(function: str, reason: str, count: int) -> str:
    where = f"{function}: " if function else ""
    return f"{where}{reason}" + (f" ({count} times)" if count > 1 else "")


def _hub_kernels(sheet: SheetBuilder, lead: RankObservation) -> None:
    model = lead.model
    if model is None or model.hub_kernels_asked is None:
        return
    source = "probe, layers of the model"
    basis = f"{model.hub_kernels_replaced} of {model.hub_kernel_layers} layers run one"
    sheet.put("kernels.hub_kernels_asked", model.hub_kernels_asked, source)
    sheet.put(
        "kernels.hub_kernels_inert", model.hub_kernels_asked and not model.hub_kernels_replaced, source, basis
    )
    if model.hub_kernels_reason is not None:
        sheet.put("kernels.hub_kernels_reason", model.hub_kernels_reason, source)
    else:
        sheet.not_applicable("kernels.hub_kernels_reason", "they run, or were not asked for")


def _loading(sheet: SheetBuilder, lead: RankObservation) -> None:
    names = ("data.loader_read_ms", "data.loader_tokenise_ms", "data.loader_collate_ms")
    steps = len(lead.steps)
    if not steps:
        return
    fetch_ms = lead.counters.get("loader_fetch_ms")
    if fetch_ms is not None:
        source = "probe, fetching of the DataLoader"
        tokenise_ms = lead.counters.get("loader_tokenise_ms", 0.0)
        collate_ms = lead.counters.get("loader_collate_ms", 0.0)
        # tokenising happens while an example is read or while it is collated: it is part of either
        read_ms = max(0.0, fetch_ms - collate_ms)
        for name, spent_ms in zip(names, (read_ms, tokenise_ms, collate_ms), strict=True):
            sheet.put(name, spent_ms / steps, source, _over(lead))
    elif any(loader.num_workers for loader in lead.loaders):
        for name in names:
            sheet.not_applicable(name, "worker processes read, tokenise and collate")
    if lead.environment.device_type == "cpu":
        sheet.not_applicable("data.to_device_ms", "the job runs on the CPU")
    elif "to_device_ms" in lead.counters:
        sheet.put("data.to_device_ms", lead.counters["to_device_ms"] / steps, "probe, transfers", _over(lead))


def _calls(sheet: SheetBuilder, observation: Observation) -> None:
    """Whether the loop hands the batch to the model as it is."""
    calls = [site for site in observation.sites if site.kind == "model_call" and "whole" in site.detail]
    own = [site for site in calls if site.detail.get("direct", True) is not False]
    if own:
        whole = all(site.detail["whole"] is True for site in own)
        sheet.put("data.batch_passed_whole", whole, "probe, recorded calls", f"{len(own)} calls of the model")
    elif observation.trainer_kind in ("transformers", "trl"):
        sheet.put("data.batch_passed_whole", True, "the trainer's own call of the model")
