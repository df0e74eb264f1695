"""Ratios around 1: a point per pair, a bar for the interval."""

from __future__ import annotations

import math
from typing import Any

from autotune.report.html.figures.base import axis, layout, row_labels, rows_axis
from autotune.report.html.plots import Ratios
from autotune.report.html.theme import light


def ratios(plot: Ratios) -> Any:
    """Rows from top to bottom on a logarithmic axis, so that 2x and 0.5x are equally far from 1."""
    import plotly.graph_objects as go

    figure = go.Figure()
    values = [1.0]
    for at, row in enumerate(plot.rows):
        values += row.points
        values += [row.ratio] if row.ratio is not None else []
        if row.interval is not None:
            values += row.interval
            figure.add_scatter(
                x=list(row.interval),
                y=[at, at],
                mode="lines",
                line={"color": light(row.colour), "width": 10},
                opacity=0.45,
                hovertemplate="interval %{x:.2f}x<extra></extra>",
            )
        if row.points:
            figure.add_scatter(
                x=row.points,
                y=[at + 0.2] * len(row.points),
                mode="markers",
                marker={"color": light(row.colour), "size": 7, "symbol": "circle-open", "line": {"width": 2}},
                hovertemplate="pair %{x:.3f}x<extra></extra>",
            )
        if row.ratio is not None:
            figure.add_scatter(
                x=[row.ratio],
                y=[at],
                mode="markers",
                marker={"color": light(row.colour), "size": 12, "symbol": "diamond"},
                hovertemplate="%{x:.3f}x<extra></extra>",
            )
            figure.add_scatter(
                x=[max([row.ratio, *row.points, *(row.interval or ())])],
                y=[at],
                mode="text",
                text=[f"  {row.ratio:.2f}x"],
                textposition="middle right",
                textfont={"color": light("ink"), "size": 13},
                cliponaxis=False,
                hoverinfo="skip",
            )
    low, high = min(values), max(values)
    ticks = ticks_between(low, high)
    room = 0.06 + 0.08 * math.log10(high / low) if high > low else 0.1
    figure.add_vline(x=1, line={"color": light("muted"), "width": 1.5, "dash": "dot"})
    figure.update_layout(
        layout(
            60 + 84 * len(plot.rows),
            xaxis=axis(
                plot.x_title,
                type="log",
                tickvals=ticks,
                ticktext=[f"{tick:g}x" for tick in ticks],
                range=[math.log10(low) - room, math.log10(high) + 2.2 * room],
            ),
            yaxis=rows_axis(len(plot.rows), top=0.75, bottom=0.45),
            annotations=[*figure.layout.annotations, *row_labels([row.name for row in plot.rows], 0.3)],
        )
    )
    return figure


def ticks_between(low: float, high: float) -> list[float]:
    """Round ratios inside the range, few enough to read."""
    found: list[float] = [1.0]
    for steps in (
        (0.01, 0.1, 10, 100, 1000),
        (0.2, 0.5, 2, 5, 20, 50),
        (0.3, 0.7, 1.5, 3, 4, 7),
        (0.8, 0.9, 1.1, 1.2, 1.3, 1.4),
        (0.95, 1.05),
        (0.98, 0.99, 1.01, 1.02),
    ):
        found += [step for step in steps if low <= step <= high]
        if len(found) >= 4:
            break
    return sorted(found)
