"""Stacked bars and histograms."""

from __future__ import annotations

from typing import Any

from autotune.report.html.figures.base import axis, layout, plain, row_labels, rows_axis
from autotune.report.html.plots import Columns, StackedBars
from autotune.report.html.theme import light

_TEXT_ROOM = 0.07  # share of the axis a label needs


def stacked(plot: StackedBars) -> Any:
    """One horizontal bar per row; text inside where it fits."""
    import plotly.graph_objects as go

    rows = list(range(len(plot.rows)))
    longest = max((sum(part.values[at] for part in plot.parts) for at in range(len(rows))), default=0.0)
    figure = go.Figure()
    for part in plot.parts:
        figure.add_bar(
            y=rows,
            width=0.5,
            x=part.values,
            orientation="h",
            name=plain(part.name),
            text=[
                text if value > _TEXT_ROOM * longest else ""
                for text, value in zip(part.texts, part.values, strict=True)
            ],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            constraintext="none",
            textfont={
                "color": light("surface") if part.colour not in ("idle",) else light("ink"),
                "size": 12,
            },
            marker={"color": light(part.colour), "line": {"width": 0}},
            customdata=part.texts,
            hovertemplate=f"{plain(part.name)}: %{{customdata}}<extra></extra>",
        )
    share = {"tickformat": ".0%", "range": [0, 1.001]} if plot.share else {}
    named = len(rows) > 1
    figure.update_layout(
        layout(
            58 + (62 if named else 44) * len(rows),
            barmode="stack",
            xaxis=axis(plot.unit, **share),
            yaxis=rows_axis(len(rows), top=0.75 if named else 0.5),
            annotations=row_labels(plot.rows, 0.3) if named else [],
        )
    )
    return figure


def columns(plot: Columns) -> Any:
    """Vertical bars between the edges of bins."""
    import plotly.graph_objects as go

    widths = [high - low for low, high in zip(plot.edges, plot.edges[1:], strict=False)]
    middles = [(low + high) / 2 for low, high in zip(plot.edges, plot.edges[1:], strict=False)]
    labels = [f"{low:,.0f} to {high - 1:,.0f}" for low, high in zip(plot.edges, plot.edges[1:], strict=False)]
    figure = go.Figure()
    for name, colour, values in plot.series:
        figure.add_bar(
            x=middles,
            y=values,
            width=widths,
            name=plain(name),
            marker={"color": light(colour), "line": {"width": 1, "color": light("surface")}},
            customdata=labels,
            hovertemplate="%{customdata}: %{y}<extra></extra>",
        )
    figure.update_layout(
        layout(
            300,
            bargap=0,
            barmode="group",
            xaxis=axis(plot.x_title, showgrid=False),
            yaxis=axis(plot.y_title),
        )
    )
    return figure
