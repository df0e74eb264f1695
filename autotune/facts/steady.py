"""Step times of a launch over all ranks: the slowest rank is the step."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from autotune.records.observation import Observation, RankObservation, StepRecord

# Steps that are no sample of the job's speed.
_NOT_SPEED = {"first", "warmup", "profiled", "after_profile", "compile"}
_INTERRUPTED = {"checkpoint", "evaluation"}
_FEWEST = 3  # steps without an interruption; with fewer the interruptions are how the job runs
_WINDOW = 5
_TOLERANCE = 0.05


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
    """The steady, unprofiled steps.

    Warm-up ends at the first index from which the running median of five stays within 5 % of the median of
    the second half. When steps differ in work (other numbers of tokens) the time per token settles instead.
    """
    rows: list[tuple[int, float, float]] = []
    interrupted: list[tuple[int, float, float]] = []
    for index, entries in steps_by_index(observation).items():
        if any(set(step.tags) & _NOT_SPEED for _, step in entries):
            continue
        duration = max(step.duration_ms for _, step in entries)
        tokens = sum(step.tokens or 0 for _, step in entries)
        row = (index, duration, duration / tokens if tokens else duration)
        (interrupted if any(set(step.tags) & _INTERRUPTED for _, step in entries) else rows).append(row)
    if len(rows) < _FEWEST:
        rows = sorted(rows + interrupted)
    if not rows:
        return StepTimes([], [], steady=False)
    paces = [pace for _, _, pace in rows]
    start = _settled_at(paces)
    kept = rows[start:] if start is not None else rows
    return StepTimes([d for _, d, _ in kept], [i for i, _, _ in kept], steady=start is not None)


def _settled_at(paces: list[float]) -> int | None:
    """First index from which the running median stays near the median of the second half.

    Near is 5 %, or what the scatter of the steps lets a median of five differ by: batches of unequal work
    scatter without drifting.
    """
    if len(paces) < 3:
        return None
    later = paces[len(paces) // 2 :]
    goal = median(later)
    scatter = median(abs(pace - goal) for pace in later)
    window = min(_WINDOW, len(paces))
    tolerance = max(_TOLERANCE * goal, 2.0 * scatter)
    running = [median(paces[i : i + window]) for i in range(len(paces) - window + 1)]
    for start in range(len(running)):
        if all(abs(value - goal) <= tolerance for value in running[start:]):
            return start
    return None
