"""The stretches of a watched run as arrays, and tests for change over them.

A change counts when the ends of the run differ by more than `_LEAST_FRAC` and by more than four times what
neighbouring stretches differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from autotune.records.observation import SegmentRecord

    Array = NDArray[np.float64]

FEWEST = 8  # stretches before anything is said of change
_LEAST_FRAC = 0.05
_BLOCKS = 12
_NOISE_TIMES = 4.0


@dataclass(frozen=True)
class Change:
    """A quantity that is another one at the end of the run than at its begin."""

    kind: Literal["drift", "jump"]
    before: float
    after: float
    at: int  # index of the first stretch after a jump; of the last one for a drift

    @property
    def frac(self) -> float:
        return self.after / self.before - 1.0 if self.before else 0.0


def settled(segments: Sequence[SegmentRecord]) -> list[SegmentRecord]:
    """Stretches with steps, without those of the start-up (the first one, and the first hundredth)."""
    used = [s for s in segments if s.steps and s.median_ms]
    begin = max(1, len(used) // 100)
    return used[begin:] if len(used) > FEWEST else used


def column(segments: Sequence[SegmentRecord], name: str, *, per_step: bool = True) -> Array:
    """One field of every stretch, divided by its steps; NaN where it was not measured."""
    values = [getattr(s, name) for s in segments]
    steps = [s.steps if per_step else 1 for s in segments]
    return np.array([np.nan if v is None else v / n for v, n in zip(values, steps, strict=True)])


def find_change(values: Array) -> Change | None:
    """How the quantity changed over the run; None when it did not, or when that cannot be told from noise."""
    known = values[~np.isnan(values)]
    if known.size < FEWEST:
        return None
    blocks = np.array([np.median(block) for block in np.array_split(known, min(_BLOCKS, known.size // 2))])
    edge = max(1, len(blocks) // 4)
    before, after = float(np.median(blocks[:edge])), float(np.median(blocks[-edge:]))
    noise = float(np.median(np.abs(np.diff(known)))) / np.sqrt(known.size / len(blocks))
    shift = abs(after - before)
    if shift < _LEAST_FRAC * max(abs(before), 1e-12) or shift < _NOISE_TIMES * noise:
        return None
    at, jump_error = _best_jump(known)
    line_error = _line_error(known)
    low, high = float(np.median(known[:at])), float(np.median(known[at:]))
    kept = abs(high - low) > 0.6 * shift and (high - low) * (after - before) > 0
    if jump_error < 0.8 * line_error and kept:
        return Change("jump", low, high, _original_index(values, at))
    if not _goes_one_way(blocks):
        return None  # up and down again: slow stretches say more
    return Change("drift", before, after, len(values) - 1)


def slow_stretches(values: Array) -> list[tuple[int, int]]:
    """Runs of at least three stretches more than a fifth above the median: [first, last] indexes."""
    high = values > 1.2 * float(np.nanmedian(values))
    found: list[tuple[int, int]] = []
    start = None
    for index, is_high in enumerate([*high.tolist(), False]):
        if is_high and start is None:
            start = index
        elif not is_high and start is not None:
            if index - start >= 3:
                found.append((start, index - 1))
            start = None
    return found


def _best_jump(known: Array) -> tuple[int, float]:
    """The split into two levels with the smallest absolute error, and that error."""
    best, best_error = 1, float("inf")
    margin = max(2, known.size // 20)
    for at in np.unique(np.linspace(margin, known.size - margin, 200).astype(int)):
        left, right = known[:at], known[at:]
        error = float(np.abs(left - np.median(left)).sum() + np.abs(right - np.median(right)).sum())
        if error < best_error:
            best, best_error = int(at), error
    return best, best_error


def _line_error(known: Array) -> float:
    """Absolute error of the Theil-Sen line."""
    thin = known[np.linspace(0, known.size - 1, min(known.size, 300)).astype(int)]
    x = np.linspace(0.0, 1.0, thin.size)
    left, right = np.triu_indices(thin.size, 1)
    slope = float(np.median((thin[right] - thin[left]) / (x[right] - x[left])))
    rest = known - slope * np.linspace(0.0, 1.0, known.size)
    return float(np.abs(rest - np.median(rest)).sum())


def _goes_one_way(blocks: Array) -> bool:
    """Kendall's tau of the blocks: most pairs are in the same order."""
    left, right = np.triu_indices(blocks.size, 1)
    signs = np.sign(blocks[right] - blocks[left])
    return bool(abs(float(signs.mean())) >= 0.6)


def _original_index(values: Array, at: int) -> int:
    """Index among all stretches of the `at`-th known one."""
    return int(np.flatnonzero(~np.isnan(values))[at])
