"""The timeline of one step, and a closer look in which single kernels can be seen."""

from __future__ import annotations

from autotune.records.timeline import Timeline
from autotune.report.html.gather import Material
from autotune.report.html.plots import Lanes
from autotune.report.html.view import Block, Figure, Section, Table
from autotune.report.html.words import kernel_name, milliseconds, percent, plural

_SAME_SCALE = 12.0
_COLOURS = {  # of CPU ops, runtime calls, GPU work
    "forward": "blue",
    "backward": "purple",
    "recomputation": "pink",
    "optimizer step": "orange",
    "other CPU ops": "gray",
    "kernel launch": "slate",
    "waiting for the GPU": "red",
    "other call": "gray",
    "matrix products": "green",
    "attention": "olive",
    "linear attention": "gold",
    "convolution": "brown",
    "communication": "indigo",
    "copies": "gray",
    "optimizer": "pink",
    "elementwise, norms, reductions": "teal",
    "not classified": "idle",
}


def section(material: Material) -> Section | None:
    """None without a kept trace."""
    sides = [side for side in (material.before, material.after) if side is not None]
    drawn = [(side, side.picture.step) for side in sides if side.picture is not None and side.picture.step]
    if not drawn:
        return None
    longest = max(step.window_ms for _, step in drawn)
    blocks: list[Block] = []
    for number, (side, step) in enumerate(drawn):
        head = "One step" if len(drawn) == 1 else f"One step, {side.name}"
        # Steps of one job on one scale, as long as the shorter can still be seen.
        scale = longest if longest < _SAME_SCALE * step.window_ms else step.window_ms
        blocks.append(_figure(f"timeline-{number}" if number else "timeline", head, step, scale))
    for number, (side, _) in enumerate(drawn):
        closer = side.picture.closer if side.picture is not None else None
        if closer is not None:
            head = "A closer look" if len(drawn) == 1 else f"A closer look, {side.name}"
            name = f"timeline-closer-{number}" if number else "timeline-closer"
            blocks.append(_figure(name, head, closer, closer.window_ms, closer=True))
    lead = (
        "A box is work close together; its height shows how much of it is really covered, so low boxes are "
        "many short pieces with gaps. Times are of the profiled run. With a mouse, drag across a stretch to "
        "enlarge it and double-click to go back."
    )
    return Section("timeline", "Timeline", blocks, lead)


def _figure(name: str, title: str, timeline: Timeline, scale_ms: float, *, closer: bool = False) -> Figure:
    kinds = list(dict.fromkeys(box.kind for lane in timeline.lanes for box in lane.boxes))
    length = milliseconds(timeline.window_ms)
    if closer:
        note = (
            f"{length} of the same step, where the GPU is as busy as over the whole step; "
            f"it begins at {milliseconds(timeline.starts_at_ms)} of the trace."
        )
    else:
        note = f"{timeline.step} of {timeline.file}, {length} long in the profiled run."
    if timeline.lanes_left_out:
        note += f" {plural(timeline.lanes_left_out, 'lane')} with less work not drawn."
    rows = []
    for lane in timeline.lanes:
        longest = max(lane.boxes, key=lambda box: box.end_ms - box.start_ms)
        rows.append(
            [
                lane.name,
                percent(lane.busy_frac),
                f"{sum(box.events for box in lane.boxes):,}",
                f"{longest.kind}, {milliseconds(longest.end_ms - longest.start_ms)}: "
                f"{kernel_name(longest.longest, 60)}",
            ]
        )
    said = ", ".join(f"{lane.name} covered {percent(lane.busy_frac)}" for lane in timeline.lanes)
    return Figure(
        name,
        f"{title}: {length}",
        f"Timeline of {length} with one lane for each CPU thread and GPU stream. {said}.",
        Lanes(timeline, {kind: _COLOURS.get(kind, "gray") for kind in kinds}, scale_ms),
        Table("Lanes", ["lane", "covered", "events", "longest stretch"], rows, frozenset({1, 2})),
        note,
    )
