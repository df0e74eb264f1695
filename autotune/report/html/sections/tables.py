"""The tables of the founding case: CPU ops and GPU kernels, before and after where both sides were traced."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.records.trace import DiffRow, RankTrace, TraceDiff, TraceSummary
from autotune.report.html.gather import Material
from autotune.report.html.view import Block, Note, Section, Table, filled
from autotune.report.html.words import amount, kernel_name, milliseconds, size

_ROWS = 12
_MARKS = {"new": "new", "gone": "gone", "matched": ""}
_STATUS = {"new": "only after", "gone": "only before", "matched": ""}


def section(material: Material) -> Section | None:
    """None without a trace."""
    before = material.before.traces
    if before is None or not before.ranks:
        return None
    after = material.after.traces if material.after is not None else None
    if after is not None and after.ranks and material.after is not None:
        from autotune.trace.diff import diff

        shown = both_sides(diff(before, after), material.before.name, material.after.name)
        return Section(
            "tables",
            "Ops and kernels, before and after",
            [*shown, *communication(before)],
            "The same tables of both traces. Times are of the profiled runs.",
        )
    blocks = [*one_side(before.ranks[0]), *communication(before)]
    if not blocks:
        return None
    return Section("tables", "Ops and kernels", blocks, "Times are of the profiled run.")


def both_sides(diff: TraceDiff, before: str, after: str) -> list[Block]:
    """Totals, CPU ops and GPU kernels side by side."""
    t = diff.totals
    totals: list[tuple[str, float | None, float | None]] = [
        ("CPU op calls", t.cpu_calls_before, t.cpu_calls_after),
        ("GPU kernels", t.gpu_kernels_before or None, t.gpu_kernels_after or None),
        ("median kernel, µs", t.median_kernel_before_us, t.median_kernel_after_us),
        ("GPU busy, ms", t.gpu_busy_before_ms, t.gpu_busy_after_ms),
        ("GPU span (profiled), ms", t.gpu_span_before_ms, t.gpu_span_after_ms),
    ]
    rows = [
        [name, amount(one), amount(other), f"{other / one:.2f}x" if one else ""]
        for name, one, other in totals
        if one is not None and other is not None
    ]
    blocks: list[Block] = [
        Table(
            "Totals", ["", f"before: {before}", f"after: {after}", "after/before"], rows, frozenset({1, 2, 3})
        )
    ]
    for title, table in (("CPU ops", diff.cpu_ops), ("GPU kernels", diff.gpu_kernels)):
        if table:
            blocks.append(_diff_table(title, table))
    blocks += [Note(warning.text, "caution") for warning in diff.warnings]
    return blocks


def _diff_table(title: str, table: Sequence[DiffRow]) -> Table:
    chosen = _leading(table)
    return Table(
        f"{title}: the largest before and after",
        ["name", "calls before", "calls after", "time before", "time after", ""],
        [
            [
                kernel_name(row.name),
                f"{row.calls_before:,}",
                f"{row.calls_after:,}",
                milliseconds(row.total_before_ms) if row.calls_before else "",
                milliseconds(row.total_after_ms) if row.calls_after else "",
                _STATUS[row.status],
            ]
            for row in chosen
        ],
        frozenset({1, 2, 3, 4}),
        [_MARKS[row.status] for row in chosen],
    )


def _leading(table: Sequence[DiffRow]) -> list[DiffRow]:
    """The largest rows of either side, so that what vanished and what came both show."""
    before = sorted(table, key=lambda row: -row.total_before_ms)[:_ROWS]
    after = sorted(table, key=lambda row: -row.total_after_ms)[:_ROWS]
    chosen = {id(row): row for row in [*before, *after] if row.calls_before or row.calls_after}
    return sorted(chosen.values(), key=lambda row: -max(row.total_before_ms, row.total_after_ms))


def one_side(rank: RankTrace) -> list[Block]:
    """The tables of a single trace."""
    blocks: list[Block] = []
    tables = rank.tables
    if tables.gpu_kernels:
        rows = [
            [
                kernel_name(row.name),
                f"{row.calls:,}",
                f"{amount(row.average_us)} µs",
                milliseconds(row.total_ms),
                (row.kernel_class or "not classified").replace("_", " "),
            ]
            for row in tables.gpu_kernels[:_ROWS]
        ]
        caption = f"GPU kernels: {tables.gpu_kernel_count:,} launched, {tables.gpu_distinct:,} different"
        blocks.append(
            Table(caption, ["name", "calls", "average", "total", "kind"], rows, frozenset({1, 2, 3}))
        )
    if tables.cpu_ops:
        rows = [
            [
                kernel_name(row.name),
                f"{row.calls:,}",
                f"{amount(row.average_us)} µs",
                milliseconds(row.total_ms),
            ]
            for row in tables.cpu_ops[:_ROWS]
        ]
        caption = f"CPU ops: {tables.cpu_calls:,} calls, {tables.cpu_distinct:,} different"
        blocks.append(Table(caption, ["name", "calls", "average", "total"], rows, frozenset({1, 2, 3})))
    return blocks


def communication(summary: TraceSummary) -> list[Block]:
    """Collectives of the first rank, and what several ranks together show."""
    blocks: list[Block] = []
    found = sorted(summary.ranks[0].communication.collectives, key=lambda row: -row.total_ms)
    if found:
        rows = [
            [
                row.kind.replace("_", " "),
                f"{row.count:,}",
                size(row.bytes) if row.bytes is not None else "",
                row.dtype or "",
                f"{row.group_size}" if row.group_size is not None else "",
                milliseconds(row.total_ms),
                milliseconds(row.exposed_ms),
                f"{amount(row.bus_gb_s)} GB/s" if row.bus_gb_s is not None else "",
            ]
            for row in found[:_ROWS]
        ]
        head = ["collective", "calls", "size", "type", "ranks", "total", "not hidden", "fastest, bus"]
        blocks.append(filled(Table("Communication", head, rows, frozenset({1, 2, 4, 5, 6, 7}))))
    cross = summary.cross_rank
    if cross is not None and cross.ranks:
        loads = [
            [
                str(load.rank),
                milliseconds(load.compute_ms),
                milliseconds(load.communication_ms),
                milliseconds(load.wait_ms),
                f"{load.last_arrivals:,}",
            ]
            for load in cross.ranks
        ]
        head = ["rank", "computing", "communicating", "of that waiting", "came last"]
        blocks += [Table("Across ranks", head, loads, frozenset({0, 1, 2, 3, 4})), Note(cross.note)]
    return blocks
