"""Curves over a shared axis, in panels on top of each other."""

from __future__ import annotations

from typing import Any

from autotune.report.html.figures.base import axis, layout, plain
from autotune.report.html.plots import Curve, Panel, Panels
from autotune.report.html.theme import light

_PANEL = 150
_ALONE = 250


def panels(plot: Panels) -> Any:
    """One subplot per panel."""
    from plotly.subplots import make_subplots

    count = len(plot.panels)
    height = _ALONE if count == 1 else _PANEL * count
    figure = make_subplots(rows=count, cols=1, shared_xaxes=True, vertical_spacing=min(0.08, 0.25 / count))
    for row, panel in enumerate(plot.panels, 1):
        for curve in panel.curves:
            figure.add_trace(_trace(curve, panel), row=row, col=1)
        for level in panel.levels:
            figure.add_hline(
                y=level.y,
                row=row,
                col=1,
                line={"color": light(level.colour), "width": 1.5, "dash": "dot"},
            )
        figure.update_yaxes(_y_axis(panel), row=row, col=1)
    for span in plot.spans:
        for row in range(1, count + 1):
            figure.add_vrect(
                x0=span.start,
                x1=span.end,
                row=row,
                col=1,
                fillcolor=light(span.colour),
                line={"width": 0},
                layer="below",
            )
    figure.update_xaxes(axis("", showgrid=False))
    figure.update_xaxes(axis(plot.x_title, showgrid=False), row=count, col=1)
    figure.update_layout(layout(height + 60, hovermode="x"))
    return figure


def _trace(curve: Curve, panel: Panel) -> Any:
    import plotly.graph_objects as go

    few = len(curve.x) <= 60
    mode = "markers" if curve.style == "points" else "lines+markers" if few else "lines"
    shape = {"shape": "hv"} if curve.style == "steps" else {}
    value = "%{y:.0%}" if panel.percent else "%{y:.5~g}"
    return go.Scatter(
        x=curve.x,
        y=curve.y,
        name=plain(curve.name),
        mode=mode,
        line={
            "color": light(curve.colour),
            "width": 2,
            "dash": "dash" if curve.style == "dashed" else "solid",
            **shape,
        },
        marker={
            "color": light(curve.colour),
            "size": 9 if curve.style == "points" else 5,
            "symbol": "circle-open" if curve.style == "points" else "circle",
        },
        hovertemplate=f"{plain(curve.name)}: {value}<extra></extra>",
    )


def _y_axis(panel: Panel) -> dict[str, Any]:
    more: dict[str, Any] = {"rangemode": "tozero"} if panel.from_zero else {}
    if panel.percent:
        more["tickformat"] = ".0%"
    if panel.top is not None:
        more["range"] = [0, panel.top * 1.05]
    return axis(panel.y_title, nticks=5, **more)
