"""Figures as the JSON that plotly's script draws, and that script itself."""

from __future__ import annotations

from typing import Any

from autotune.errors import InputError
from autotune.report.html.plots import Columns, Lanes, Panels, Plot, Ratios, StackedBars


def require_plotly() -> None:
    """Raise InputError where plotly is not installed."""
    from importlib.util import find_spec

    if find_spec("plotly") is None:
        raise InputError(
            "the HTML report is drawn with plotly, which is not installed",
            hint="pip install 'autotune-training[report]'",
            code="extra-missing",
        )


def figure_json(plot: Plot) -> str:
    """One figure as JSON; it may hold any text, so it is escaped again where it is put into a page."""
    return str(_figure(plot).to_json(engine="json"))


def plotly_script() -> str:
    """plotly.js as one text."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _figure(plot: Plot) -> Any:
    from autotune.report.html.figures.bars import columns, stacked
    from autotune.report.html.figures.lanes import lanes
    from autotune.report.html.figures.lines import panels
    from autotune.report.html.figures.ratios import ratios

    match plot:
        case StackedBars():
            figure = stacked(plot)
        case Columns():
            figure = columns(plot)
        case Panels():
            figure = panels(plot)
        case Ratios():
            figure = ratios(plot)
        case Lanes():
            figure = lanes(plot)
    figure.update_layout(template=None)
    return figure
