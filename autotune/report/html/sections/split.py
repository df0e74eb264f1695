"""Where the time of a step goes, where GPU time goes, and why the GPU stood still."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.records.facts import FactValue
from autotune.records.trace import RankTrace
from autotune.report.html.gather import Material, Side
from autotune.report.html.plots import Part, StackedBars
from autotune.report.html.view import Block, Figure, Note, Section, Table
from autotune.report.html.words import milliseconds, number_of, percent

_IDLE = {
    "host_ops": ("CPU busy in ops", "orange"),
    "python": ("CPU busy in Python", "gold"),
    "launch": ("launching the next kernel", "purple"),
    "sync": ("CPU waiting for the GPU", "red"),
    "data_loading": ("waiting for data", "pink"),
    "compile": ("compiling", "teal"),
    "stream_wait": ("waiting for another stream", "blue"),
    "host_idle": ("CPU idle", "gray"),
    "unknown": ("unknown", "idle"),
}
# As in the timeline where it has the kind; the others take what is left.
_CLASS_COLOURS = {
    "gemm": "green",
    "elementwise": "teal",
    "communication": "indigo",
    "attention": "olive",
    "linear_attention": "gold",
    "triangular_solve": "orange",
    "causal_conv": "brown",
    "conv": "brown",
    "optimizer": "pink",
    "memcpy": "slate",
    "norm": "blue",
    "layout": "purple",
}
_SPARE_COLOURS = ("blue", "purple", "orange", "red", "olive", "gold", "brown", "slate")
_CLASSES_SHOWN = 7

Slice = tuple[str, str, float]  # name, colour, share


def section(material: Material) -> Section | None:
    """None when neither the job nor a trace tells how time divides."""
    blocks: list[Block] = []
    figure = _step_figure(material)
    if figure is not None:
        blocks.append(figure)
    blocks += _trace_figures(material)
    if not blocks:
        return None
    return Section("time", "Where the time of a step goes", blocks)


def step_slices(facts: Mapping[str, FactValue]) -> list[Slice]:
    """Shares of an unprofiled step; empty where they are not known."""
    busy, loader = number_of(facts, "launch.gpu_busy_frac"), number_of(facts, "data.loader_wait_frac")
    optimizer = number_of(facts, "optimizer.step_frac")
    if busy is not None:
        busy = min(busy, 1.0)
        exposed = min(number_of(facts, "comm.exposed_frac") or 0.0, busy)
        waits = min(loader or 0.0, 1.0 - busy)
        parts = [
            ("GPU computing", "green", busy - exposed),
            ("communication nothing hides", "purple", exposed),
            ("waiting for data", "pink", waits),
            ("GPU idle", "idle", max(0.0, 1.0 - busy - waits)),
        ]
    elif loader is not None and optimizer is not None:
        rest = max(0.0, 1.0 - loader - optimizer)
        own = min(rest, number_of(facts, "stall.beside_frac") or 0.0)
        own = own if own >= 0.03 else 0.0
        parts = [
            ("forward and backward", "blue", rest - own),
            ("optimizer", "orange", optimizer),
            ("the loop's own code", "purple", own),
            ("waiting for data", "pink", loader),
        ]
    else:
        return []
    return [part for part in parts if part[2] > 0.0005]


def _step_figure(material: Material) -> Figure | None:
    rows = []
    for side in (material.before, material.after):
        facts = side.diagnosis.facts if side is not None and side.diagnosis is not None else {}
        slices = step_slices(facts)
        if side is not None and slices:
            rows.append((side.name, slices, number_of(facts, "run.step_ms")))
    if not rows:
        return None
    names = list(dict.fromkeys(name for _, slices, _ in rows for name, _, _ in slices))
    parts = []
    for name in names:
        found = [next((s for s in slices if s[0] == name), None) for _, slices, _ in rows]
        colour = next(s[1] for s in found if s is not None)
        values = [s[2] if s is not None else 0.0 for s in found]
        parts.append(Part(name, colour, values, [percent(v) for v in values]))
    table = Table(
        "Shares of an unprofiled step",
        ["", *names, "step"],
        [
            [
                title,
                *(percent(part.values[at]) for part in parts),
                milliseconds(step) if step is not None else "not measured",
            ]
            for at, (title, _, step) in enumerate(rows)
        ],
        frozenset(range(1, len(names) + 2)),
    )
    said = "; ".join(f"{t}: " + ", ".join(f"{n} {percent(v)}" for n, _, v in s) for t, s, _ in rows)
    return Figure(
        "step-split",
        "One step",
        f"Bar of the shares of an unprofiled step. {said}.",
        StackedBars([title for title, _, _ in rows], parts, "share of the step"),
        table,
    )


def _trace_figures(material: Material) -> list[Block]:
    sides = [
        side for side in (material.before, material.after) if side is not None and _rank(side) is not None
    ]
    if not sides:
        return []
    found: list[Block] = []
    ranks = [
        (side.name, rank) for side in sides if (rank := _rank(side)) is not None and rank.gpu is not None
    ]
    if ranks:
        found += [figure for figure in (_classes(ranks), _idle(ranks)) if figure is not None]
        found.append(
            Note(
                "GPU times are of profiled steps. The profiler stretches the gaps between kernels, so they "
                "show what the time went to, not how fast the job is."
            )
        )
    return found


def _rank(side: Side) -> RankTrace | None:
    return side.traces.ranks[0] if side.traces is not None and side.traces.ranks else None


def _classes(ranks: list[tuple[str, RankTrace]]) -> Figure | None:
    """GPU time by kind of kernel, the sides in milliseconds on one axis."""
    totals: dict[str, float] = {}
    for _, rank in ranks:
        for row in rank.classes:
            totals[row.name] = max(totals.get(row.name, 0.0), row.total_ms)
    order = sorted(totals, key=lambda name: -totals[name])
    leading = [name for name in order if name != "other"][:_CLASSES_SHOWN]
    if not leading:
        return None
    by_side = [{row.name: row for row in rank.classes} for _, rank in ranks]
    parts = []
    for name, colour in zip(leading, _colours(leading), strict=True):
        values = [rows[name].total_ms if name in rows else 0.0 for rows in by_side]
        parts.append(Part(name.replace("_", " "), colour, values, [milliseconds(v) for v in values]))
    rest = [sum(r.total_ms for n, r in rows.items() if n not in leading and n != "other") for rows in by_side]
    unknown = [rows["other"].total_ms if "other" in rows else 0.0 for rows in by_side]
    parts.append(Part("other kinds", "gray", rest, [milliseconds(v) for v in rest]))
    parts.append(Part("not classified", "idle", unknown, [milliseconds(v) for v in unknown]))
    parts = [part for part in parts if any(part.values)]
    head = ["kind of kernel"]
    for title, _ in ranks:
        head += [f"{title}: kernels", f"{title}: time"]
    table_rows = []
    for name in order:
        cells = [name.replace("_", " ")]
        for rows in by_side:
            cells += (
                [f"{rows[name].count:,}", milliseconds(rows[name].total_ms)] if name in rows else ["0", "0"]
            )
        table_rows.append(cells)
    table = Table("GPU time by kind of kernel", head, table_rows, frozenset(range(1, len(head))))
    said = ", ".join(f"{part.name} {part.texts[0]}" for part in parts[:4])
    return Figure(
        "gpu-classes",
        "GPU time by kind of kernel",
        f"Bars of GPU time by kind of kernel. {ranks[0][0]}: {said}.",
        StackedBars([title for title, _ in ranks], parts, "GPU time, ms", share=False),
        table,
    )


def _colours(names: list[str]) -> list[str]:
    """A colour of its own for each kind."""
    taken = {name: _CLASS_COLOURS[name] for name in names if name in _CLASS_COLOURS}
    spare = iter([colour for colour in _SPARE_COLOURS if colour not in taken.values()])
    return [taken[name] if name in taken else next(spare) for name in names]


def _idle(ranks: list[tuple[str, RankTrace]]) -> Figure | None:
    ranks = [(title, rank) for title, rank in ranks if rank.idle]
    if not ranks:
        return None
    causes = list(dict.fromkeys(cause.cause for _, rank in ranks for cause in rank.idle))
    parts = []
    for cause in causes:
        name, colour = _IDLE[cause]
        values = [next((c.total_ms for c in rank.idle if c.cause == cause), 0.0) for _, rank in ranks]
        if max(values) > 0.005 * max(rank.gpu.span_ms for _, rank in ranks if rank.gpu is not None):
            parts.append(Part(name, colour, values, [milliseconds(v) for v in values]))
    if not parts:
        return None
    table = Table(
        "GPU idle time by what the CPU did meanwhile, profiled",
        ["", *(part.name for part in parts)],
        [[title, *(part.texts[at] for part in parts)] for at, (title, _) in enumerate(ranks)],
        frozenset(range(1, len(parts) + 1)),
    )
    said = ", ".join(f"{part.name} {part.texts[0]}" for part in parts)
    return Figure(
        "gpu-idle",
        "Why the GPU stood still",
        f"Bars of GPU idle time by cause in the profiled run. {ranks[0][0]}: {said}.",
        StackedBars([title for title, _ in ranks], parts, "GPU idle time, ms", share=False),
        table,
    )
