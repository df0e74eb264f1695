"""How near a job is to its own roofline: the time its arithmetic and memory traffic need on this device.

Only work whose amount is known from recorded shapes counts as needed; everything else is room, so the share
is a lower bound and a job is never called done too early.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.records.trace import RankTrace

NEAR = 0.9  # from here on faster code for the same work is not looked for


def roof_share(folder: Path, step_ms: float | None) -> float | None:
    """Needed time over the unprofiled step, of the busiest rank; None where no trace tells it."""
    from autotune.errors import AutotuneError
    from autotune.records.trace import TraceSummary
    from autotune.store import read_record

    path = folder / "trace_summary.json"
    if not step_ms or not path.is_file():
        return None
    try:
        summary = read_record(path, TraceSummary)
    except AutotuneError:
        return None
    known = [needed for rank in summary.ranks if (needed := _needed_ms(rank)) is not None]
    return max(known) / step_ms if known else None


def _needed_ms(rank: RankTrace) -> float | None:
    rows = [row for row in rank.roofline if row.roof_frac is not None]
    if not rows or not rank.steps.count:
        return None
    return sum(row.gpu_ms * min(1.0, row.roof_frac or 0.0) for row in rows) / rank.steps.count
