"""The founding tables of two traces side by side: rows matched, new and gone kernels marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

from autotune.records.trace import (
    ClassDiff,
    DiffRow,
    DiffTotals,
    RankTrace,
    TraceDiff,
    TraceSummary,
    TraceWarning,
)
from autotune.records.trace_ops import KernelRow, OpRow

_CHANGED_TIMES = ("negative_duration", "over_long_events", "begin_end_events")
Status = Literal["matched", "new", "gone"]
Row = TypeVar("Row", OpRow, KernelRow)


def diff(a: TraceSummary, b: TraceSummary) -> TraceDiff:
    """Compare the first rank of each summary: `a` is before, `b` is after.

    The tables hold every name a trace ran, so a row is new or gone when the other trace never ran it.
    """
    before, after = a.ranks[0], b.ranks[0]
    kernels = _kernel_rows(before, after)
    return TraceDiff(
        before=before.file.name,
        after=after.file.name,
        totals=_totals(before, after),
        cpu_ops=_rows(before.tables.cpu_ops, after.tables.cpu_ops),
        gpu_kernels=kernels,
        classes=_classes(before, after),
        new_kernels=[row.name for row in kernels if row.status == "new"],
        gone_kernels=[row.name for row in kernels if row.status == "gone"],
        warnings=[*_of_many(a, b), *_warnings(before, after)],
    )


def _rows(before: Sequence[Row], after: Sequence[Row]) -> list[DiffRow]:
    old: dict[str, Row] = {row.name: row for row in before}
    new: dict[str, Row] = {row.name: row for row in after}
    names = list(dict.fromkeys([*old, *new]))
    rows = [_row(name, old.get(name), new.get(name)) for name in names]
    return sorted(rows, key=lambda row: -max(row.total_before_ms, row.total_after_ms))


def _row(name: str, old: OpRow | KernelRow | None, new: OpRow | KernelRow | None) -> DiffRow:
    status: Status = "matched" if old and new else "new" if new else "gone"
    either = new or old
    return DiffRow(
        name=name,
        status=status,
        kernel_class=either.kernel_class if isinstance(either, KernelRow) else None,
        calls_before=old.calls if old else 0,
        calls_after=new.calls if new else 0,
        total_before_ms=old.total_ms if old else 0.0,
        total_after_ms=new.total_ms if new else 0.0,
        average_before_us=old.average_us if old else None,
        average_after_us=new.average_us if new else None,
    )


def _kernel_rows(before: RankTrace, after: RankTrace) -> list[DiffRow]:
    return _rows(before.tables.gpu_kernels, after.tables.gpu_kernels)


def _totals(before: RankTrace, after: RankTrace) -> DiffTotals:
    return DiffTotals(
        cpu_calls_before=before.tables.cpu_calls,
        cpu_calls_after=after.tables.cpu_calls,
        gpu_kernels_before=before.tables.gpu_kernel_count,
        gpu_kernels_after=after.tables.gpu_kernel_count,
        median_kernel_before_us=before.tables.median_kernel_us,
        median_kernel_after_us=after.tables.median_kernel_us,
        gpu_span_before_ms=before.gpu.span_ms if before.gpu else None,
        gpu_span_after_ms=after.gpu.span_ms if after.gpu else None,
        gpu_busy_before_ms=before.gpu.busy_ms if before.gpu else None,
        gpu_busy_after_ms=after.gpu.busy_ms if after.gpu else None,
        steps_before=before.steps.count,
        steps_after=after.steps.count,
    )


def _classes(before: RankTrace, after: RankTrace) -> list[ClassDiff]:
    old, new = {item.name: item for item in before.classes}, {item.name: item for item in after.classes}
    rows = [
        ClassDiff(
            name=name,
            count_before=old[name].count if name in old else 0,
            count_after=new[name].count if name in new else 0,
            total_before_ms=old[name].total_ms if name in old else 0.0,
            total_after_ms=new[name].total_ms if name in new else 0.0,
        )
        for name in dict.fromkeys([*old, *new])
    ]
    return sorted(rows, key=lambda row: -max(row.total_before_ms, row.total_after_ms))


def _of_many(a: TraceSummary, b: TraceSummary) -> list[TraceWarning]:
    if len(a.ranks) == len(b.ranks) == 1:
        return []
    text = (
        f"one of {len(a.ranks)} ranks before and one of {len(b.ranks)} after are compared, the lowest of each"
    )
    return [TraceWarning(code="one_rank_compared", severity="info", text=text)]


def _warnings(before: RankTrace, after: RankTrace) -> list[TraceWarning]:
    found = [
        TraceWarning(code=warning.code, severity=warning.severity, text=f"{side}: {warning.text}")
        for side, rank in (("before", before), ("after", after))
        for warning in rank.validity.warnings
        if warning.severity == "unreliable" or warning.code in _CHANGED_TIMES
    ]
    old, new = before.device, after.device
    if old and new and old.name != new.name:
        found.append(
            TraceWarning(
                code="different_devices", severity="caution", text=f"{old.name} before, {new.name} after"
            )
        )
    if before.steps.count != after.steps.count:
        found.append(
            TraceWarning(
                code="different_step_counts",
                severity="caution",
                text=f"{before.steps.count} steps before, {after.steps.count} after: compare per step",
            )
        )
    if before.world_size != after.world_size:
        found.append(
            TraceWarning(
                code="different_world_sizes",
                severity="caution",
                text=f"world size {before.world_size} before, {after.world_size} after",
            )
        )
    return found
