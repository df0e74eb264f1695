"""Step times of a launch over all ranks: the slowest rank is the step."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from autotune.records.observation import Observation, RankObservation, StepRecord
from autotune.steadiness import NOT_SPEED, at_equal_work, settle, trend

_INTERRUPTED = {"checkpoint", "evaluation"}
_FEWEST = 3  # steps without an interruption; with fewer the interruptions are how the job runs
_CLOSE = 0.05


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Unprofiled steps in the steady state; durations in ms, slowest rank of each step."""

    durations_ms: list[float]
    indices: list[int]
    steady: bool

    @property
    def median_ms(self) -> float | None:
        return median(self.durations_ms) if self.durations_ms else None

    @property
    def spread_frac(self) -> float | None:
        middle = self.median_ms
        if not middle:
            return None
        return median(abs(d - middle) for d in self.durations_ms) / middle


def steps_by_index(observation: Observation) -> dict[int, list[tuple[RankObservation, StepRecord]]]:
    """Steps that every reporting rank has, by index."""
    by_index: dict[int, list[tuple[RankObservation, StepRecord]]] = {}
    for rank in observation.ranks:
        for step in rank.steps:
            by_index.setdefault(step.index, []).append((rank, step))
    full = len(observation.ranks)
    return {index: rows for index, rows in sorted(by_index.items()) if len(rows) == full}


def step_times(observation: Observation) -> StepTimes:
    """The steady, unprofiled steps; where steps differ in work, the time for equal work settles instead."""
    rows: list[tuple[int, float, float | None]] = []
    interrupted: list[tuple[int, float, float | None]] = []
    for index, entries in steps_by_index(observation).items():
        if any(set(step.tags) & NOT_SPEED for _, step in entries):
            continue
        duration = max(step.duration_ms for _, step in entries)
        row = (index, duration, sum(step.tokens or 0 for _, step in entries) or None)
        (interrupted if any(set(step.tags) & _INTERRUPTED for _, step in entries) else rows).append(row)
    if len(rows) < _FEWEST:
        rows = sorted(rows + interrupted, key=lambda row: row[0])
    if len(rows) < _FEWEST:
        return StepTimes([d for _, d, _ in rows], [i for i, _, _ in rows], steady=False)
    values = at_equal_work([d for _, d, _ in rows], [tokens for _, _, tokens in rows])
    found = settle(values, _CLOSE)
    steady = found.near and trend(values, found.half) is None
    kept = rows[found.start :] if steady else rows
    return StepTimes([d for _, d, _ in kept], [i for i, _, _ in kept], steady=steady)
