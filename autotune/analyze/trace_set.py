"""The traces of a diagnosis as a set: whether they are of one job, their cautions, what they do not show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.errors import InputError
from autotune.facts.fact import WATCH_IT

if TYPE_CHECKING:
    from autotune.records.findings import Undecided
    from autotune.records.trace import RankTrace, TraceSummary

_TOLD_ELSEWHERE = ("profiled_step_inflated",)  # the bar of the step and the bounds say it
_MOST_NOTES = 4
_A_GPU_TRACE = "give a trace with GPU activity"


def require_one_job(summary: TraceSummary) -> None:
    """Raises InputError for files that cannot be one file for each rank of one job."""
    by_rank: dict[int, RankTrace] = {}
    by_world: dict[int, RankTrace] = {}
    for item in summary.ranks:
        if item.rank is not None:
            first = by_rank.setdefault(item.rank, item)
            if first is not item:
                raise _mixed(f"{first.file.name} and {item.file.name} are both of rank {item.rank}")
        if item.world_size is not None:
            by_world.setdefault(item.world_size, item)
    if len(by_world) > 1:
        told = [f"{item.file.name} is of a job of {world} ranks" for world, item in by_world.items()]
        raise _mixed(", ".join(told[:2]))


def _mixed(what: str) -> InputError:
    return InputError(
        f"not the traces of one job: {what}",
        hint="give one file of each rank; autotune diff compares two jobs or two recordings",
        code="traces-mixed",
    )


def trace_notes(summary: TraceSummary) -> list[str]:
    """Cautions about the traces, the worst first: what they lost makes findings less certain."""
    found = [
        (warning.severity != "unreliable", f"{item.file.name}: {warning.text}")
        for item in summary.ranks
        for warning in item.validity.warnings
        if warning.severity != "info" and warning.code not in _TOLD_ELSEWHERE
    ]
    found += [(False, warning.text) for warning in summary.warnings if warning.severity != "info"]
    notes = list(dict.fromkeys(text for _, text in sorted(found, key=lambda pair: pair[0])))
    more = len(notes) - _MOST_NOTES
    return notes if more <= 1 else [*notes[:_MOST_NOTES], f"{more} more cautions about the traces"]


def undecided_here(
    items: Sequence[Undecided], summary: TraceSummary | None, *, watched: bool = False
) -> list[Undecided]:
    """The undecided rules, without the advice to do what was done: to watch the job, to give a trace."""
    traced = summary is not None and any(item.validity.has_gpu_events for item in summary.ranks)
    left = []
    for item in items:
        ways = [
            way
            for way in item.decided_by
            if not (traced and way.startswith(_A_GPU_TRACE)) and not (watched and way == WATCH_IT)
        ]
        if ways != item.decided_by:
            seen = "the watched job" if watched else "the trace"
            item = item.model_copy(update={"decided_by": ways or [f"nothing: {seen} does not show it"]})
        left.append(item)
    return left
