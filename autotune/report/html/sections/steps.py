"""Duration of every observed step."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from autotune.records.observation import RankObservation, StepRecord
from autotune.report.html.gather import Material
from autotune.report.html.plots import Curve, Level, Panel, Panels, Span
from autotune.report.html.view import Figure, Section, Table, filled
from autotune.report.html.words import milliseconds, number_of, plural

_COLOURS = ("blue", "orange", "green", "purple", "pink", "teal", "gold", "gray")
_RANKS = len(_COLOURS)
_ROWS = 200
_POINTS = 800
WINDOWS = {"timing": ("timed", "band"), "profile": ("profiler on", "tint")}


def section(material: Material) -> Section | None:
    """None when no steps were observed."""
    observation = material.before.observation
    ranks = [rank for rank in (observation.ranks if observation else []) if len(rank.steps) > 1]
    if not ranks:
        return None
    shown = sorted(ranks, key=lambda rank: rank.rank)[:_RANKS]
    curves = [
        Curve(
            f"rank {rank.rank}" if len(shown) > 1 else "step",
            [float(step.index) for step in steps],
            [step.duration_ms for step in steps],
            colour,
        )
        for rank, colour in zip(shown, _COLOURS, strict=False)
        for steps in [longest_of_each(rank.steps, _POINTS)]
    ]
    levels = []
    typical = number_of(material.diagnosis.facts, "run.step_ms")
    if typical is not None:
        levels.append(Level(f"median {milliseconds(typical)}", typical, "gray"))
    first = shown[0]
    table = Table(
        f"Steps of rank {first.rank}",
        ["step", "time", "tokens", "without padding", "waited for data", "remarks"],
        [
            [
                str(step.index),
                milliseconds(step.duration_ms),
                f"{step.tokens:,}" if step.tokens is not None else "",
                f"{step.real_tokens:,}" if step.real_tokens is not None else "",
                milliseconds(step.loader_wait_ms) if step.loader_wait_ms is not None else "",
                ", ".join(step.tags).replace("_", " "),
            ]
            for step in first.steps[-_ROWS:]
        ],
        frozenset({0, 1, 2, 3, 4}),
    )
    times = [step.duration_ms for step in first.steps]
    note = "Steps under the profiler are slower and are no measure of speed."
    if len(first.steps) > _POINTS:
        note += f" Of every {-(-len(first.steps) // _POINTS)} steps the longest is drawn."
    if len(ranks) > len(shown):
        note += f" {plural(len(ranks) - len(shown), 'more rank')} not drawn."
    figure = Figure(
        "steps-figure",
        "Time of each observed step",
        f"Duration of {plural(len(times), 'step')} of rank {first.rank}: "
        f"median {milliseconds(median(times))}, longest {milliseconds(max(times))}.",
        Panels(
            "step",
            [Panel("ms", curves, levels)],
            profiled_spans(first),
        ),
        filled(table),
        note,
    )
    return Section("steps", "Steps", [figure])


def longest_of_each(steps: Sequence[StepRecord], most: int) -> list[StepRecord]:
    """Few enough steps to draw; of steps that fall together the longest, so that no stall is lost."""
    size = -(-len(steps) // most)
    return [max(steps[at : at + size], key=lambda s: s.duration_ms) for at in range(0, len(steps), size)]


def profiled_spans(rank: RankObservation) -> list[Span]:
    """Where the profiler ran and where steps were timed, in step numbers."""
    spans = []
    windows = sorted(rank.windows, key=lambda window: window.begins_after)
    for at, window in enumerate(windows):
        if window.name not in WINDOWS:
            continue
        end = windows[at + 1].begins_after if at + 1 < len(windows) else rank.steps[-1].index
        if end > window.begins_after:
            spans.append(window_span(window.name, window.begins_after + 0.5, end + 0.5))
    return spans


def window_span(window: str, start: float, end: float) -> Span:
    """A window of the observer as a stretch of an axis."""
    name, colour = WINDOWS[window]
    return Span(name, start, end, colour)
