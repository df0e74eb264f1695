"""The ladder of an optimize run: what each kept change brought, and what was not kept."""

from __future__ import annotations

from autotune.records.ladder import Ladder, Rung
from autotune.report.html.gather import Material
from autotune.report.html.plots import Ratio, Ratios
from autotune.report.html.view import Block, Checks, Figure, Note, Section, Table
from autotune.report.html.words import amount, interval_text, milliseconds, percent, plural, times
from autotune.report.ladder import beyond_the_usual, left_out
from autotune.report.wrapping import duration


def section(material: Material) -> Section | None:
    """None for a run that was not optimized."""
    ladder = material.ladder
    if ladder is None:
        return None
    blocks: list[Block] = []
    if len(ladder.rungs) > 1:
        blocks.append(_figure(ladder))
    if material.kept_change is not None and (material.kept_change.files or material.kept_change.reason):
        blocks.append(material.kept_change)
    if beside := " ".join(" ".join(beyond_the_usual(ladder)).split()):
        blocks.append(Note(f"{beside[0].upper()}{beside[1:]}."))
    for heading, entries in left_out(ladder).items():
        blocks.append(Checks(heading.capitalize(), [(heading, *entry) for entry in entries]))
    if ladder.advice:
        blocks.append(Checks("For you to decide", [("advice", "", line) for line in ladder.advice]))
    if ladder.notes:
        blocks.append(Checks("Notes", [("note", "", note) for note in ladder.notes]))
    stopped = f"Stopped: {ladder.stop_reason}." if ladder.stop_reason else f"State: {ladder.state}."
    blocks.append(Note(f"{stopped} {plural(ladder.trials, 'trial')}, {ladder.minutes:.1f} minutes."))
    return Section("ladder", "What was changed and what it brought", blocks)


def _figure(ladder: Ladder) -> Figure:
    rows = [
        Ratio(
            f"{number}. {rung.name}",
            [],
            rung.ratio_to_first,
            rung.interval_to_first,
            "gray" if number == 0 else "green",
        )
        for number, rung in enumerate(ladder.rungs)
    ]
    columns = _columns(ladder.rungs)
    table = Table(
        "Rungs of the ladder",
        ["", "change", *(name for name, _ in columns)],
        [[str(at), rung.name, *(cells[at] for _, cells in columns)] for at, rung in enumerate(ladder.rungs)],
        frozenset({0, *range(2, len(columns) + 2)}),
    )
    last = ladder.rungs[-1]
    said = "; ".join(
        f"{rung.name}: {times(rung.ratio_to_first)}"
        for rung in ladder.rungs
        if rung.ratio_to_first is not None
    )
    return Figure(
        "ladder-figure",
        f"{len(ladder.rungs) - 1} kept, {times(last.ratio_to_first)} in all"
        if last.ratio_to_first is not None
        else f"{len(ladder.rungs) - 1} kept",
        f"Speed of the job after each kept change, as a multiple of the unchanged job. {said}.",
        Ratios(rows, "times as fast as the unchanged job"),
        table,
    )


def _columns(rungs: list[Rung]) -> list[tuple[str, list[str]]]:
    """Columns that at least one rung fills."""
    wanted: list[tuple[str, list[str]]] = [
        ("useful tokens/s", [_cell(r.useful_tokens_per_s, lambda v: f"{v:,.0f}") for r in rungs]),
        ("step", [_cell(r.step_ms, milliseconds) for r in rungs]),
        ("bound", [_cell(r.predicted_upper, times) for r in rungs]),
        ("this step", [_cell(r.ratio_to_previous, times) for r in rungs]),
        ("interval", [interval_text(r.interval_to_previous) for r in rungs]),
        ("in all", [_cell(r.ratio_to_first, times) for r in rungs]),
        ("GPU busy", [_cell(r.gpu_busy_frac, percent) for r in rungs]),
        ("MFU", [_cell(r.mfu_frac, percent) for r in rungs]),
        ("peak memory", [_cell(r.peak_memory_gib, lambda v: f"{amount(v)} GiB") for r in rungs]),
        ("whole job", [_cell(r.projected_hours, duration) for r in rungs]),
    ]
    return [(name, cells) for name, cells in wanted if any(cells)]


def _cell(value: float | None, shown: object) -> str:
    assert callable(shown)
    return str(shown(value)) if value is not None else ""
