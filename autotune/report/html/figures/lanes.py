"""The timeline: a lane per thread and stream, a box per stretch of work, its height the share covered."""

from __future__ import annotations

from typing import Any

from autotune.records.timeline import TimeBox
from autotune.report.html.figures.base import axis, layout, plain, row_labels, rows_axis
from autotune.report.html.plots import Lanes
from autotune.report.html.theme import light
from autotune.report.html.words import kernel_name, milliseconds, percent, plural

_HEIGHT = 0.56  # of a lane that is fully covered


def lanes(plot: Lanes) -> Any:
    """One bar trace per kind of work, so that the legend names the colours."""
    import plotly.graph_objects as go

    timeline = plot.timeline
    scale, unit = (1.0, "ms") if timeline.window_ms >= 10 else (1000.0, "µs")
    figure = go.Figure()
    for kind, colour in plot.colours.items():
        boxes = [
            (at, box) for at, lane in enumerate(timeline.lanes) for box in lane.boxes if box.kind == kind
        ]
        heights = [max(0.04, _HEIGHT * box.busy_frac) for _, box in boxes]
        figure.add_bar(
            orientation="h",
            name=plain(kind),
            base=[round(box.start_ms * scale, 4) for _, box in boxes],
            x=[round((box.end_ms - box.start_ms) * scale, 4) for _, box in boxes],
            # Boxes stand on the floor of their lane.
            y=[
                round(at + _HEIGHT / 2 - height / 2, 4)
                for (at, _), height in zip(boxes, heights, strict=True)
            ],
            width=[round(height, 4) for height in heights],
            marker={"color": light(colour), "line": {"width": 0}},
            customdata=[_told(box) for _, box in boxes],
            hovertemplate="%{customdata}<extra></extra>",
        )
    names = [f"{lane.name}, {percent(lane.busy_frac)} covered" for lane in timeline.lanes]
    figure.update_layout(
        layout(
            60 + 54 * len(names),
            barmode="overlay",
            bargap=0,
            dragmode="zoom",
            xaxis=axis(
                f"{unit} from the start of the window (profiled)",
                range=[0, plot.scale_ms * scale],
                fixedrange=False,
                showgrid=True,
            ),
            yaxis=rows_axis(len(names), top=0.62, bottom=0.35),
            annotations=row_labels(names, _HEIGHT / 2 + 0.02, width=58, most=1),
        )
    )
    return figure


def _told(box: TimeBox) -> str:
    length = box.end_ms - box.start_ms
    if box.events == 1:
        return f"{plain(box.kind)}, {milliseconds(length)}<br>{plain(kernel_name(box.longest, 70))}"
    return (
        f"{plain(box.kind)}, {milliseconds(length)}: {plural(box.events, 'piece')}, "
        f"{percent(box.busy_frac)} covered<br>longest: {plain(kernel_name(box.longest, 70))}"
    )
