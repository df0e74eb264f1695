"""The report of a watched run as text."""

from __future__ import annotations

from autotune.records.watch import WatchReport
from autotune.report.wrapping import wrap


def render_watch(report: WatchReport) -> str:
    """At most 80 columns: what ran, what happened over the run, what it could not tell."""
    ranks = f"{report.ranks} rank{'s' if report.ranks != 1 else ''}"
    lines = wrap(f"{report.steps:,} steps on {ranks} in {_duration(report.trained_s)}" + _median(report))
    if report.remarks:
        lines += [""]
        for remark in report.remarks:
            lines += wrap(f"{remark.kind:<15} {remark.text}", hang=16)
    elif report.median_ms is not None:
        lines += ["", "Nothing changed over the run, and nothing interrupted it for long."]
    small = [f"{pause.kind} {pause.total_ms / 1e3:.3g} s ({pause.share_frac:.1%})" for pause in report.pauses]
    if small:
        lines += ["", *wrap("Pauses in all: " + ", ".join(small), hang=15)]
    for text in report.unknown:
        lines += ["", *wrap(f"Not known: {text}", hang=11)]
    return "\n".join(lines)


def _median(report: WatchReport) -> str:
    return "" if report.median_ms is None else f", {report.median_ms:.4g} ms a step (median)"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"
