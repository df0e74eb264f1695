"""A traced step as boxes on lanes, reduced to a number that can be drawn, and the memory curve beside it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Record


class TimeBox(Record):
    """Work close together on one lane; `busy_frac` tells how much of the box is really covered."""

    start_ms: float
    end_ms: float
    busy_frac: float
    kind: str = Field(description="The kind of work with the most time in the box")
    events: int
    longest: str = Field(description="Name of the longest event in the box")


class TimeLane(Record):
    """One row of the picture."""

    name: str
    role: Literal["ops", "calls", "compute", "communication", "copy", "mixed"]
    busy_frac: float = Field(description="Share of the window that is covered")
    boxes: list[TimeBox]


class Timeline(Record):
    """A window of a trace. Times count from the window's start and are of the profiled run."""

    file: str
    step: str
    window_ms: float
    starts_at_ms: float = Field(description="Start of the window, from the first event of the trace")
    lanes: list[TimeLane]
    lanes_left_out: int = 0
    column_ms: float = Field(description="Work closer than this is one box")


class MemoryPoint(Record):
    """Allocator totals; the largest of the samples that fell together."""

    at_ms: float
    allocated_gib: float
    reserved_gib: float | None


class MemoryCurve(Record):
    """Memory over the traced run, where the profiler recorded it."""

    device: Literal["gpu", "cpu", "unknown"]
    points: list[MemoryPoint]


class TracePicture(Record):
    """What can be drawn of one trace; a part without data is None."""

    step: Timeline | None
    closer: Timeline | None
    memory: MemoryCurve | None
