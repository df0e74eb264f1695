"""Memory over the traced step, and where its peak is."""

from __future__ import annotations

from autotune.records.timeline import MemoryCurve
from autotune.report.html.gather import Material
from autotune.report.html.plots import Curve, Level, Panel, Panels
from autotune.report.html.view import Block, Figure, Pairs, Section, Table
from autotune.report.html.words import amount, milliseconds, number_of

_ROWS = 40
_DEVICES = {"gpu": "GPU", "cpu": "host", "unknown": "allocator"}
_FACTS = (
    ("memory.peak_reserved_gib", "peak, reserved"),
    ("memory.peak_allocated_gib", "peak, allocated"),
    ("memory.static_gib", "parameters, gradients, optimizer state"),
    ("memory.activation_gib", "activations and the rest"),
    ("memory.device_gib", "the device has"),
)


def section(material: Material) -> Section | None:
    """None when nothing about memory was recorded."""
    facts = material.diagnosis.facts
    blocks: list[Block] = []
    picture = material.before.picture
    curve = picture.memory if picture is not None else None
    if curve is not None and len(curve.points) > 1:
        blocks.append(_figure(curve, number_of(facts, "memory.device_gib")))
    rows = [
        (label, f"{amount(value)} GiB")
        for name, label in _FACTS
        if (value := number_of(facts, name)) is not None
    ]
    if rows:
        blocks.append(Pairs(rows))
    return Section("memory", "Memory", blocks) if blocks else None


def _figure(curve: MemoryCurve, device_gib: float | None) -> Figure:
    points = curve.points
    x = [point.at_ms for point in points]
    curves = [Curve("allocated", x, [point.allocated_gib for point in points], "blue", "steps")]
    if any(point.reserved_gib is not None for point in points):
        curves.append(Curve("reserved", x, [point.reserved_gib for point in points], "gray", "steps"))
    top = max(points, key=lambda point: point.allocated_gib)
    levels = []
    if device_gib is not None and curve.device == "gpu":
        levels.append(Level(f"device: {amount(device_gib)} GiB", device_gib, "red"))
    step = max(1, len(points) // _ROWS)
    table = Table(
        "Memory over the trace",
        ["at", "allocated", "reserved"],
        [
            [
                milliseconds(point.at_ms),
                f"{amount(point.allocated_gib)} GiB",
                f"{amount(point.reserved_gib)} GiB" if point.reserved_gib is not None else "",
            ]
            for point in points[::step]
        ],
        frozenset({0, 1, 2}),
    )
    kind = _DEVICES[curve.device]
    said = f"peak {amount(top.allocated_gib)} GiB at {milliseconds(top.at_ms)}"
    return Figure(
        "memory-curve",
        f"{kind} memory over the traced run",
        f"Curve of {kind} memory over the traced run: {said}.",
        Panels("ms from the first event", [Panel("GiB", curves, levels)]),
        table,
        f"{said[0].upper()}{said[1:]}.",
    )
