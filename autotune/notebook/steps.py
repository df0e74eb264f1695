"""Every optimizer step of a run as one table: the watched launch and each launch of each trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from autotune.notebook.table import Row, Table

if TYPE_CHECKING:
    from autotune.records.observation import Observation, StepRecord
    from autotune.records.verdict import Trial, Verdict

COLUMNS: dict[str, type] = {
    "arm": str,  # "as it was" for the watched launch, else the name of the arm
    "launch": str,  # folder of the launch, relative to the run
    "purpose": str,  # watch | parity | live | timing
    "block": int,  # round of a trial in which each arm ran once; None outside timing
    "step": int,
    "duration_ms": float,  # of the slowest rank
    "slowest_rank": int,
    "profiled": bool,  # slowed by the profiler: not a speed
    "micro_batches": int,
    "examples": int,
    "tokens": int,  # with padding
    "real_tokens": int,
    "supervised_tokens": int,
    "loader_wait_ms": float,  # of the rank that waited longest
    "tags": str,
}
_PROFILED = {"profiled"}


def steps_table(observation: Observation | None, verdicts: Mapping[str, Verdict]) -> Table:
    """Steps in the order they ran; counts are sums over ranks. `verdicts` by folder of the run."""
    rows: list[Row] = list(_watched(observation)) if observation is not None else []
    for folder, verdict in verdicts.items():
        for trial in verdict.trials:
            rows += _tried(trial, f"{folder}/{trial.label}")
    return Table(COLUMNS, rows)


def _watched(observation: Observation) -> Iterator[Row]:
    by_index: dict[int, dict[int, StepRecord]] = {}
    for rank in observation.ranks:
        for step in rank.steps:
            by_index.setdefault(step.index, {})[rank.rank] = step
    for index, ranks in sorted(by_index.items()):
        slowest = max(ranks, key=lambda number: ranks[number].duration_ms)
        steps = list(ranks.values())
        tags = list(dict.fromkeys(tag for step in steps for tag in step.tags))
        waits = [step.loader_wait_ms for step in steps if step.loader_wait_ms is not None]
        yield {
            "arm": "as it was",
            "launch": "launches/observe",
            "purpose": "watch",
            "block": None,
            "step": index,
            "duration_ms": ranks[slowest].duration_ms,
            "slowest_rank": slowest,
            "profiled": bool(_PROFILED & set(tags)),
            "micro_batches": steps[0].micro_batches,
            "examples": _sum([step.examples for step in steps]),
            "tokens": _sum([step.tokens for step in steps]),
            "real_tokens": _sum([step.real_tokens for step in steps]),
            "supervised_tokens": _sum([step.supervised_tokens for step in steps]),
            "loader_wait_ms": max(waits, default=None),
            "tags": ", ".join(tags),
        }


def _tried(trial: Trial, launch: str) -> Iterator[Row]:
    for step in trial.steps:
        yield {
            "arm": trial.arm,
            "launch": launch,
            "purpose": trial.purpose,
            "block": trial.block,
            "step": step.index,
            "duration_ms": step.slowest_ms,
            "slowest_rank": step.rank_ms.index(step.slowest_ms),
            "profiled": bool(_PROFILED & set(step.tags)),
            "micro_batches": step.micro_batches,
            "examples": step.examples,
            "tokens": step.tokens,
            "real_tokens": step.real_tokens,
            "supervised_tokens": step.supervised_tokens,
            "loader_wait_ms": step.loader_wait_ms,
            "tags": ", ".join(step.tags),
        }


def _sum(values: list[int | None]) -> int | None:
    """The sum over ranks, or None when a rank did not count."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
