"""Facts about how often a job goes over its data, and work that grows from step to step."""

from __future__ import annotations

from itertools import combinations
from statistics import median

from autotune.facts.sheet import SheetBuilder
from autotune.records.host import GrowthRecord
from autotune.records.observation import Observation, RankObservation

_GIB = 1024.0**3
_SETTLED = 3  # from this step on the work of a step is the usual one
_FEWEST = 7  # steps that show a trend
_HORIZON = 1000.0  # steps, where neither the epoch nor the whole job is known
_ODD = {"first", "compile", "profiled", "after_profile", "checkpoint", "evaluation", "gc"}


def repeated_facts(sheet: SheetBuilder, observation: Observation) -> None:
    """From the lead rank; after the facts of the loader and the run."""
    lead = observation.ranks[0]
    _passes(sheet, observation, lead)
    _trend(sheet, observation, lead)
    if lead.growth is not None:
        _kept(sheet, lead.growth, observation)


def _passes(sheet: SheetBuilder, observation: Observation, lead: RankObservation) -> None:
    if observation.epochs_planned is not None:
        sheet.put("data.passes_planned", observation.epochs_planned, "the job's arguments")
    elif lead.passes is not None:
        sheet.put("data.passes_planned", float(lead.passes.planned), "probe, the loop around the loader's")
    elif observation.max_steps_planned and (each := sheet.number("run.optimizer_steps_per_epoch")):
        passes = observation.max_steps_planned / each
        sheet.put("data.passes_planned", passes, "steps asked for over those of an epoch")


def _horizon(sheet: SheetBuilder, observation: Observation) -> float:
    """Steps after which what grows usually starts anew, or the job is over."""
    known = [
        value
        for value in (sheet.number("run.optimizer_steps_per_epoch"), observation.max_steps_planned)
        if value
    ]
    return min(known) if known else _HORIZON


def _trend(sheet: SheetBuilder, observation: Observation, lead: RankObservation) -> None:
    """The loop's own time against the step's number: Kendall's rank correlation, Theil and Sen's slope.

    Not on a GPU: there the host's time holds its waits for the device, whose clock rate falls as it warms up.
    """
    on_gpu = lead.environment.device_type != "cpu"
    points, sizes = [], []
    for step in lead.steps:
        if step.outside_ms is None or step.index < _SETTLED or _ODD & set(step.tags):
            continue
        points.append((float(step.index), step.outside_ms))
        size = step.elements if step.elements is not None else step.tokens
        if size is not None:
            sizes.append((float(step.index), float(size)))
    step_ms = sheet.number("run.step_ms")
    own = [s.outside_ms / s.duration_ms for s in lead.steps if s.outside_ms is not None and s.duration_ms]
    if own:
        how = f"{len(own)} steps, rank {lead.rank}"
        sheet.put("host.outside_frac", min(1.0, median(own)), "probe, step times", how)
    source, basis = "probe, step times", f"the loop's own code over {len(points)} steps, rank {lead.rank}"
    if on_gpu or len(points) < _FEWEST or not step_ms:
        why = "on a GPU the host's times hold its waits" if on_gpu else "too few steps were seen for a trend"
        for name in ("trend", "ms_per_step", "frac", "seen_frac"):
            sheet.absent(f"host.growth_{name}", why)
        return
    slope_ms = median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2))
    horizon = _horizon(sheet, observation)
    mean_ms = max(0.0, slope_ms) * horizon / 2.0
    sheet.put("host.growth_trend", _kendall(points), source, basis)
    known = len(sizes) == len(points)
    why = "the batches' sizes are not known"
    sheet.put("host.batch_trend", abs(_kendall(sizes)) if known else None, "probe, batches", basis, why=why)
    sheet.put("host.growth_ms_per_step", slope_ms, source, basis)
    sheet.put("host.growth_frac", mean_ms / (mean_ms + step_ms), source, f"{basis}, over {horizon:.0f} steps")
    seen_ms = slope_ms * (points[-1][0] - points[0][0])
    sheet.put("host.growth_seen_frac", max(0.0, min(1.0, seen_ms / step_ms)), source, basis)


def _kendall(points: list[tuple[float, float]]) -> float:
    signs = [(b[1] > a[1]) - (b[1] < a[1]) for a, b in combinations(points, 2)]
    return sum(signs) / len(signs) if signs else 0.0


def _kept(sheet: SheetBuilder, found: GrowthRecord, observation: Observation) -> None:
    source, basis = "probe, names of the job's own code", f"{found.steps} steps"
    sheet.put("host.kept_values", len(found.kept), source, basis)
    slope_ms, line_ms = sheet.number("host.growth_ms_per_step"), found.work_ms_per_step
    if found.work_function is not None and line_ms is not None and slope_ms is not None and slope_ms > 0.0:
        sheet.put("host.growing_function", found.work_function, "probe, stack of the training thread", basis)
        sheet.put(
            "host.growing_line_frac", min(1.0, line_ms / slope_ms), "probe, stack and step times", basis
        )
    else:
        for name in ("host.growing_function", "host.growing_line_frac"):
            sheet.not_applicable(name, "no line takes longer from step to step")
    names = ("host.kept_name", "memory.kept_graph", "memory.kept_frac")
    if not found.kept:
        for name in names:
            sheet.not_applicable(name, "no name holds more in every step")
        return
    first = found.kept[0]
    where = f" in {first.function}" if first.function else ""
    sheet.put("host.kept_name", f"{first.name}{where}", source, basis)
    sheet.put("memory.kept_graph", first.graph, source, basis)
    memory = observation.ranks[0].memory
    held = memory.device_bytes or memory.host_bytes if memory else None
    if first.bytes_per_step is not None and held:
        horizon = _horizon(sheet, observation)
        share = first.bytes_per_step * horizon / held
        sheet.put("memory.kept_frac", min(1.0, share), source, f"over {horizon:.0f} steps")
