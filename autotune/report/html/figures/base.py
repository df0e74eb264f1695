"""What all figures share: axes, fonts, margins, and text that stays text."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from typing import Any

from autotune.report.html.theme import light

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def plain(text: str) -> str:
    """Plotly reads a little HTML and %{...} fields in labels; names from a job are shown as they are."""
    return html.escape(text, quote=False).replace("%{", "%&#8203;{")


def wrapped(text: str, width: int = 44, most: int = 2) -> str:
    """A label on a few lines that fit a phone, escaped."""
    lines = textwrap.wrap(text, width) or [""]
    if len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1][: width - 1] + "…"]
    return "<br>".join(plain(line) for line in lines)


def row_labels(names: Sequence[str], above: float, *, width: int = 44, most: int = 2) -> list[dict[str, Any]]:
    """The name of each row over its bar: a column of names beside the plot would take half of a phone."""
    return [
        {
            "text": wrapped(name, width, most),
            "xref": "paper",
            "x": 0,
            "xanchor": "left",
            "align": "left",
            "yref": "y",
            "y": at - above,
            "yanchor": "bottom",
            "showarrow": False,
            "bgcolor": light("surface"),
            "borderpad": 0,
            "font": {"size": 12, "color": light("ink")},
        }
        for at, name in enumerate(names)
    ]


def rows_axis(count: int, *, top: float = 0.7, bottom: float = 0.5) -> dict[str, Any]:
    """The axis across rows that lie at 0, 1, 2, ... from top to bottom."""
    return axis(
        "",
        range=[count - 1 + bottom, -top],
        showticklabels=False,
        showgrid=False,
        zeroline=False,
        showline=False,
    )


def layout(height: int, **more: Any) -> dict[str, Any]:
    """The layout every figure begins with."""
    common: dict[str, Any] = {
        "height": height,
        "autosize": True,
        "margin": {"l": 8, "r": 26, "t": 8, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13, "color": light("ink")},
        "hoverlabel": {
            "bgcolor": light("surface"),
            "bordercolor": light("grid"),
            "font": {"family": FONT, "size": 13, "color": light("ink")},
            "align": "left",
        },
        "showlegend": False,
        "dragmode": False,
        "bargap": 0.35,
    }
    common.update(more)
    return common


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """One axis; dragging does nothing, so that a page on a phone scrolls."""
    found: dict[str, Any] = {
        "title": {"text": plain(title), "font": {"size": 12, "color": light("muted")}, "standoff": 6},
        "gridcolor": light("grid"),
        "zerolinecolor": light("grid"),
        "linecolor": light("grid"),
        "tickfont": {"size": 12, "color": light("muted")},
        "automargin": True,
        "fixedrange": True,
    }
    found.update(more)
    return found
