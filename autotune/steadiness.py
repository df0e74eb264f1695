"""When a series of step times has settled: shared by the facts of one launch and the comparison of many.

The series is steady from the earliest step after which the running median of five steps stays near the median
of the second half. Near is a share of it, or what the scatter of the steps lets a median of five differ by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

WINDOW = 5
NOT_SPEED = frozenset({"first", "warmup", "profiled", "after_profile", "compile"})  # tags of such steps
ROOM = 2.25  # median step-to-step changes: four standard errors of a median of five normal values
TREND = 0.05  # least change between the quarters of the second half that counts as a trend
CERTAIN = 3.3  # standard errors of Kendall's S under no trend: one in a thousand
_LEAST_TREND = 8
_MOST_TREND = 16  # values of a long series: neighbouring steps share the machine's mood and prove little each
_LINE_POINTS = 100  # steps a line is fitted to, about
_HEAD = 1.5  # times the level: a warm-up step at the head of an accepted window


@dataclass(frozen=True, slots=True)
class Settled:
    """From which position a series counts. `near`: its second half does not leave its own level."""

    start: int
    half: int  # where the second half begins
    near: bool


def settle(values: Sequence[float], close: float) -> Settled:
    """Where a series of at least one value has settled; `close`: the share of the level that is near."""
    window = min(WINDOW, len(values))
    half = len(values) - max(window, len(values) // 2)
    running = [median(values[k : k + window]) for k in range(len(values) - window + 1)]
    centre = median(values[half:])
    settled = running[min(half, len(running) - 1) :]
    scatter = ROOM * median([abs(after - before) for before, after in pairwise(values)] or [0.0])
    room = max(close * centre, scatter)
    furthest = max(abs(value - centre) for value in settled)
    allowed = max(room, furthest)
    start = len(running) - 1
    while start > 0 and abs(running[start - 1] - centre) <= allowed:
        start -= 1
    # The window is accepted by its median: a warm-up step may still stand at its head.
    while start < half and values[start] > _HEAD * centre and values[start] - centre > 2 * allowed:
        start += 1
    return Settled(start, half, near=furthest <= room)


def trend(series: Sequence[float], half: int) -> float | None:
    """The change between the halves of what still changes, one value after another; else None.

    Looked at from `half` on, or over the last eight values of a short series: fewer prove nothing. A long one
    is looked at in sixteen pieces.
    """
    values = _in_pieces(series[min(half, max(0, len(series) - _LEAST_TREND)) :])
    count = len(values)
    if count < _LEAST_TREND:
        return None
    change = median(values[(count + 1) // 2 :]) / median(values[: count // 2]) - 1
    score = sum(
        (later > earlier) - (later < earlier)
        for place, earlier in enumerate(values)
        for later in values[place + 1 :]
    )
    certain = CERTAIN * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return None if abs(change) <= TREND or abs(score) < certain else change


def _in_pieces(values: Sequence[float]) -> Sequence[float]:
    """The medians of sixteen pieces of a long series, one after the other."""
    count = len(values)
    if count <= _MOST_TREND:
        return values
    ends = [place * count // _MOST_TREND for place in range(_MOST_TREND + 1)]
    return [median(values[begin:end]) for begin, end in pairwise(ends)]


def at_equal_work(durations: Sequence[float], work: Sequence[float | None]) -> list[float]:
    """Durations scaled to the mean work of a step, where all work is known and that makes them vary less.

    In proportion to the work; or by what a step costs whatever it holds and what it costs for its work, since
    batches sorted by length get shorter all the time, and their steps not in proportion.
    """
    plain = list(durations)
    if not plain or len(work) != len(plain) or any(not amount for amount in work):
        return plain
    amounts = [float(amount or 1) for amount in work]
    mean_work = fmean(amounts)
    ways = [plain, [d * mean_work / a for d, a in zip(plain, amounts, strict=True)]]
    line = _cost_line(plain, amounts)
    if line is not None:
        fixed, each = line
        level = fixed + each * mean_work
        ways.append([d * level / (fixed + each * a) for d, a in zip(plain, amounts, strict=True)])
    return min(ways, key=spread)


def _cost_line(durations: Sequence[float], amounts: Sequence[float]) -> tuple[float, float] | None:
    """What a step costs by itself and for each unit of work (Theil, Sen); None where it makes no sense."""
    every = max(1, len(durations) // _LINE_POINTS)
    points = list(zip(amounts, durations, strict=True))[::every]
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for place, earlier in enumerate(points)
        for later in points[place + 1 :]
        if later[0] != earlier[0]
    ]
    if len(slopes) < len(points):  # hardly anything varies
        return None
    each = median(slopes)
    fixed = median(duration - each * amount for amount, duration in points)
    return (fixed, each) if fixed > 0 and each > 0 else None


def spread(values: Sequence[float]) -> float:
    """Median absolute deviation against the median."""
    centre = median(values)
    return median(abs(value - centre) for value in values) / centre if centre else 0.0
