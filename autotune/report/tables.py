"""Tables of a trace as text: the founding tables, where GPU time went, and the same before and after."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from autotune.console import printable
from autotune.records.trace import DiffRow, RankTrace, TraceDiff, TraceSummary

_WIDTH = 80


def render_summary(summary: TraceSummary, *, rows: int = 10) -> str:
    """All ranks of a trace summary, at most 80 columns."""
    parts = [render_rank(rank, rows=rows) for rank in summary.ranks]
    if summary.cross_rank is not None:
        parts.append("\n".join(_wrap(f"across ranks: {summary.cross_rank.note}")))
    notes = [f"{w.severity}: {w.text}" for w in summary.warnings]
    return "\n\n".join([*parts, *notes])


def render_rank(rank: RankTrace, *, rows: int = 10) -> str:
    """One rank: totals, time by kernel class, the two tables, communication, warnings."""
    file = rank.file
    lines = [f"{file.name}: {file.events:,} events, {rank.steps.count} step(s) from {rank.steps.source}"]
    if rank.device is not None and rank.device.name:
        lines.append(f"device: {rank.device.name}")
    if rank.gpu is not None:
        gpu = rank.gpu
        lines.append(
            f"GPU span {gpu.span_ms:,.2f} ms, busy {gpu.busy_ms:,.2f} ms "
            f"({100 * (1 - gpu.idle_frac):.1f} %), {rank.tables.gpu_kernel_count:,} kernels"
            + (f", median {rank.tables.median_kernel_us:.1f} us" if rank.tables.median_kernel_us else "")
        )
        lines.append(
            "times are of the profiled run; the profiler widens gaps, so this is not the job's speed"
        )
    lines += ["", f"CPU ops: {rank.tables.cpu_calls:,} calls, {rank.tables.cpu_distinct:,} different"]
    lines.append(f"{'calls':>9} {'avg us':>9} {'total ms':>10}  name")
    ops = rank.tables.cpu_ops[:rows]
    for op, name in zip(ops, _short_names([op.name for op in ops], 48), strict=True):
        lines.append(f"{op.calls:>9,} {op.average_us:>9,.1f} {op.total_ms:>10,.2f}  {name}")
    if rank.gpu is not None:
        lines += ["", f"GPU kernels: {rank.tables.gpu_kernel_count:,}"]
        lines.append(f"{'calls':>9} {'avg us':>9} {'total ms':>10}  name")
        kernels = rank.tables.gpu_kernels[:rows]
        for kernel, name in zip(kernels, _short_names([row.name for row in kernels], 48), strict=True):
            lines.append(f"{kernel.calls:>9,} {kernel.average_us:>9,.1f} {kernel.total_ms:>10,.2f}  {name}")
        lines += ["", "GPU time by class:"]
        for row in rank.classes[:12]:
            lines.append(
                f"  {row.name:<20}{row.total_ms:>11,.2f} ms {100 * row.share_frac:>5.1f} %  x {row.count:,}"
            )
        lines.append(f"  not classified: {100 * (rank.unclassified_frac or 0.0):.1f} %")
    comm = rank.communication
    if comm.present:
        exposed = f"{100 * comm.exposed_frac:.0f} % of the span" if comm.exposed_frac is not None else "?"
        lines += [
            "",
            f"communication: {comm.union_ms:,.2f} ms in {comm.kernels} kernels, "
            f"exposed {comm.exposed_ms:,.2f} ms ({exposed}); waiting or transfer: {comm.wait_or_transfer}",
        ]
    for region in rank.regions:
        if region.gpu_ms:
            lines.append(f"{region.region:<10} GPU {region.gpu_ms:>10,.2f} ms in {region.kernels:,} kernels")
    for warning in rank.validity.warnings:
        lines += _wrap(f"{warning.severity}: {warning.text}", 2)
    return "\n".join(lines)


def render_diff(diff: TraceDiff, *, rows: int = 8) -> str:
    """The founding tables side by side; kernels that are new after the change are marked with +."""
    t = diff.totals
    lines = [f"before: {diff.before}", f"after:  {diff.after}", ""]
    lines.append(f"{'':<26}{'before':>14}{'after':>14}{'after/before':>14}")
    totals: list[tuple[str, float | None, float | None]] = [
        ("CPU op calls", t.cpu_calls_before, t.cpu_calls_after),
        ("GPU kernels", t.gpu_kernels_before, t.gpu_kernels_after),
        ("median kernel, us", t.median_kernel_before_us, t.median_kernel_after_us),
        ("GPU busy, ms", t.gpu_busy_before_ms, t.gpu_busy_after_ms),
        ("GPU span (profiled), ms", t.gpu_span_before_ms, t.gpu_span_after_ms),
    ]
    for label, before, after in totals:
        if before is None or after is None:
            continue
        ratio = f"{after / before:.2f}x" if before else "-"
        lines.append(f"{label:<26}{_number(before):>14}{_number(after):>14}{ratio:>14}")
    for title, table in (("CPU ops", diff.cpu_ops), ("GPU kernels", diff.gpu_kernels)):
        lines += ["", f"{title:<45}{'calls':>16}{'total ms':>19}"]
        leading = _leading(table, rows)
        for row, name in zip(leading, _short_names([row.name for row in leading], 42), strict=True):
            mark = {"new": "+", "gone": "-", "matched": " "}[row.status]
            calls = f"{row.calls_before:,} > {row.calls_after:,}"
            time = f"{row.total_before_ms:,.1f} > {row.total_after_ms:,.1f}"
            lines.append(f"{mark} {name:<43}{calls:>16}{time:>19}")
    lines += ["", "+ only after, - only before; times are of the profiled runs"]
    for warning in diff.warnings:
        lines += _wrap(f"{warning.severity}: {warning.text}", 2)
    return "\n".join(lines)


def _leading(table: list[DiffRow], rows: int) -> list[DiffRow]:
    """The largest rows before and after, so that what vanished and what came both show."""
    before = sorted(table, key=lambda row: -row.total_before_ms)[:rows]
    after = sorted(table, key=lambda row: -row.total_after_ms)[:rows]
    chosen = {id(row): row for row in [*before, *after]}
    return sorted(chosen.values(), key=lambda row: -max(row.total_before_ms, row.total_after_ms))


def _short_names(names: Sequence[str], width: int) -> list[str]:
    """Names shortened in the middle; those that would look alike show the part in which they differ."""
    told = [_telling(name) for name in names]
    shown = [text if len(text) <= width else f"{text[: width - 12]}...{text[-9:]}" for text in told]
    groups: dict[str, list[str]] = {}
    for short, text in zip(shown, told, strict=True):
        groups.setdefault(short, []).append(text)
    return [_apart(text, groups[short], short, width) for short, text in zip(shown, told, strict=True)]


def _apart(text: str, alike: list[str], short: str, width: int) -> str:
    others = [other for other in alike if other != text]
    if not others or len(text) <= width:
        return short
    same = max(_shared(text, other) for other in others)
    head = text[: width // 3]
    room = width - len(head) - 6
    start = min(max(same - 4, len(head)), len(text) - room)
    return f"{head}...{text[start : start + room]}" + ("..." if start + room < len(text) else "")


def _shared(a: str, b: str) -> int:
    """Characters that both begin with."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _telling(name: str) -> str:
    """The telling part of a name: no return type, no arguments, no name spaces."""
    text = (
        " ".join(printable(name[:4096]).split())
        .removeprefix("void ")
        .replace("(anonymous namespace)::", "")
        .replace("at::native::", "")
        .replace("autograd::engine::evaluate_function: ", "evaluate ")
    )
    return text.split("(", 1)[0] if "<" not in text.split("(", 1)[0] else text


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def _wrap(text: str, hang: int = 0) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=" " * hang, break_long_words=False)
