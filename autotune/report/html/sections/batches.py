"""Lengths of examples, and how much of every batch is padding."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from autotune.records.observation import Observation, StepRecord
from autotune.report.html.gather import Material
from autotune.report.html.plots import Columns, Part, StackedBars
from autotune.report.html.view import Block, Figure, Section, Table
from autotune.report.html.words import percent, plural

_BINS = 24
_MOST_BARS = 40


def section(material: Material) -> Section | None:
    """None when no lengths and no token counts were recorded."""
    blocks: list[Block] = []
    observation = material.before.observation
    if observation is None:
        return None
    lengths = example_lengths(observation)
    if len(lengths) > 1:
        blocks.append(_histogram(lengths))
    sides = [(material.before.name, observation)]
    if material.after is not None and material.after.observation is not None:
        sides.append((material.after.name, material.after.observation))
    padding = _padding(sides)
    if padding is not None:
        blocks.append(padding)
    return Section("batches", "Batches", blocks) if blocks else None


def example_lengths(observation: Observation) -> list[int]:
    """Sampled lengths of examples without padding, over the loaders of all ranks."""
    return [
        n for rank in observation.ranks for loader in rank.loaders for n in loader.example_lengths if n > 0
    ]


def bins(lengths: Sequence[int], most: int = _BINS) -> tuple[list[float], list[float]]:
    """Edges and counts of equally wide bins with round edges; the last bin holds the longest example."""
    low, high = min(lengths), max(lengths)
    width = _round_up((high - low + 1) / most)
    start = low // width * width
    count = (high - start) // width + 1
    counts = [0.0] * count
    for length in lengths:
        counts[(length - start) // width] += 1
    return [float(start + width * at) for at in range(count + 1)], counts


def _round_up(value: float) -> int:
    size = 1
    while True:
        for step in (1, 2, 5):
            if step * size >= value:
                return step * size
        size *= 10


def _histogram(lengths: list[int]) -> Figure:
    edges, counts = bins(lengths)
    middle, longest = median(lengths), max(lengths)
    at_top = sum(length == longest for length in lengths)
    note = f"{plural(len(lengths), 'example')} sampled; median {middle:,.0f} tokens, longest {longest:,}."
    if at_top > 1:
        note += (
            f" {percent(at_top / len(lengths))} have exactly the largest length: they are probably cut there."
        )
    table = Table(
        "Examples by length",
        ["tokens", "examples"],
        [
            [f"{edges[at]:,.0f} to {edges[at + 1] - 1:,.0f}", f"{count:,.0f}"]
            for at, count in enumerate(counts)
            if count
        ],
        frozenset({1}),
    )
    return Figure(
        "lengths",
        "Lengths of examples",
        f"Histogram of the lengths of {plural(len(lengths), 'example')}: median {middle:,.0f} tokens, "
        f"longest {longest:,}.",
        Columns(edges, [("examples", "blue", counts)], "tokens in an example", "examples"),
        table,
        note,
    )


def _padding(sides: Sequence[tuple[str, Observation]]) -> Figure | None:
    """Useful and padding tokens of the observed steps of both sides."""
    rows: list[tuple[str, int, int]] = []
    for title, observation in sides:
        steps = [step for rank in observation.ranks for step in rank.steps if _counted(step)]
        tokens = sum(step.tokens or 0 for step in steps)
        real = sum(step.real_tokens or 0 for step in steps)
        if tokens and real <= tokens:
            rows.append((title, real, tokens - real))
    if not rows:
        return None
    useful = [real / (real + padded) for _, real, padded in rows]
    parts = [
        Part("useful tokens", "green", useful, [f"{real:,}" for _, real, _ in rows]),
        Part("padding", "idle", [1 - share for share in useful], [f"{padded:,}" for *_, padded in rows]),
    ]
    table = Table(
        "Tokens of the observed steps",
        ["", "useful", "padding", "share of padding"],
        [[title, f"{real:,}", f"{pad:,}", percent(pad / (real + pad))] for title, real, pad in rows],
        frozenset({1, 2, 3}),
    )
    said = "; ".join(f"{title}: {percent(pad / (real + pad))} padding" for title, real, pad in rows)
    return Figure(
        "padding",
        f"Padding: {percent(rows[0][2] / (rows[0][1] + rows[0][2]))} of the tokens computed",
        f"Bars of useful tokens and padding in the observed steps. {said}.",
        StackedBars([title for title, *_ in rows], parts, "share of the tokens of all observed steps"),
        table,
    )


def _counted(step: StepRecord) -> bool:
    return step.tokens is not None and step.real_tokens is not None
