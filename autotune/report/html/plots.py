"""The data of each kind of figure, without a plotting library.

Colours are names of the palette in `theme.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from autotune.records.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Part:
    """One colour of stacked bars: a value per row."""

    name: str
    colour: str
    values: list[float]
    texts: list[str]  # ready to print, for each row


@dataclass(frozen=True, slots=True)
class StackedBars:
    """Horizontal bars made of parts; `unit` is the axis title."""

    rows: list[str]
    parts: list[Part]
    unit: str
    share: bool = True  # values are shares of one


@dataclass(frozen=True, slots=True)
class Lanes:
    """A timeline with the colour of each kind that occurs."""

    timeline: Timeline
    colours: dict[str, str]
    scale_ms: float  # length of the axis


@dataclass(frozen=True, slots=True)
class Curve:
    """A line or points; None leaves a gap."""

    name: str
    x: list[float]
    y: list[float | None]
    colour: str
    style: Literal["line", "points", "dashed", "steps"] = "line"


@dataclass(frozen=True, slots=True)
class Level:
    """A horizontal line with a name."""

    name: str
    y: float
    colour: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes; panels of a figure share the x axis and stand on top of each other."""

    y_title: str
    curves: list[Curve]
    levels: list[Level] = field(default_factory=list)
    percent: bool = False
    from_zero: bool = True
    top: float | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the x axis with a name."""

    name: str
    start: float
    end: float
    colour: str = "band"


@dataclass(frozen=True, slots=True)
class Panels:
    """Curves over a shared x axis."""

    x_title: str
    panels: list[Panel]
    spans: list[Span] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Columns:
    """Vertical bars: counts by bin. Bin i reaches from edges[i] to edges[i+1]."""

    edges: list[float]
    series: list[tuple[str, str, list[float]]]  # name, colour, values
    x_title: str
    y_title: str


@dataclass(frozen=True, slots=True)
class Ratio:
    """One row of a ratio plot."""

    name: str
    points: list[float]
    ratio: float | None
    interval: tuple[float, float] | None
    colour: str


@dataclass(frozen=True, slots=True)
class Ratios:
    """Ratios with their intervals around 1."""

    rows: list[Ratio]
    x_title: str


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend."""

    name: str
    colour: str
    style: Literal["box", "line", "dashed", "points", "dotted"]


Plot = StackedBars | Lanes | Panels | Columns | Ratios


def legend(plot: Plot) -> list[Key]:
    """What the colours of a figure mean; empty when there is nothing to tell apart."""
    keys: dict[str, Key] = {}
    match plot:
        case StackedBars():
            keys = {part.name: Key(part.name, part.colour, "box") for part in plot.parts}
        case Lanes():
            keys = {kind: Key(kind, colour, "box") for kind, colour in plot.colours.items()}
        case Panels():
            for panel in plot.panels:
                for curve in panel.curves:
                    style = "line" if curve.style == "steps" else curve.style
                    keys[curve.name] = Key(curve.name, curve.colour, style)
            if len(keys) == 1:
                keys = {}
            for span in plot.spans:
                keys[span.name] = Key(span.name, span.colour, "box")
            for panel in plot.panels:
                keys |= {level.name: Key(level.name, level.colour, "dotted") for level in panel.levels}
        case Columns():
            keys = {name: Key(name, colour, "box") for name, colour, _ in plot.series}
            if len(keys) == 1:
                keys = {}
        case Ratios():
            keys = {}
    return list(keys.values())
