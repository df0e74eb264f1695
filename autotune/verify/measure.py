"""From the timing launches to blocks, ratios and words. Pure: the same launches give the same answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from autotune.records.verdict import Block, Contrast, Trial
from autotune.verify import stats
from autotune.verify.figures import UnitChoice, block_figures, choose_unit, log_ratio, pauses_compared
from autotune.verify.guards import drift_note, load_note, machine_fault, odd_block


@dataclass(frozen=True, slots=True)
class Measurement:
    """Everything the timing launches say."""

    unit: UnitChoice
    blocks: list[Block]
    contrasts: list[Contrast]
    notes: list[str]

    def pairs(self, reference: str, candidate: str) -> list[float]:
        """Log ratios of the blocks that count."""
        return _pairs(self.blocks, reference, candidate, self.unit)


def measure(trials: Sequence[Trial], arms: Sequence[str]) -> Measurement:
    """Blocks of the finished timing launches, and every arm against the first and its predecessor."""
    timing = [t for t in trials if t.purpose == "timing" and t.outcome == "finished" and t.block is not None]
    unit = choose_unit(timing)
    blocks = _blocks(timing, arms, unit)
    wanted = [(arms[0], arm) for arm in arms[1:]]
    wanted += [pair for pair in pairwise(arms) if pair not in wanted]
    contrasts = [_contrast(blocks, reference, candidate, unit) for reference, candidate in wanted]
    notes = [f"block {b.number} set aside: {b.set_aside}" for b in blocks if b.set_aside]
    notes += _unsettled(trials, {b.number for b in blocks})
    drift = drift_note([b for b in blocks if not b.set_aside], arms[0], unit.unit)
    return Measurement(
        unit, blocks, contrasts, [*notes, *(note for note in (drift, load_note(timing)) if note)]
    )


def _blocks(timing: Sequence[Trial], arms: Sequence[str], unit: UnitChoice) -> list[Block]:
    """Complete blocks in order, the untrustworthy ones marked."""
    found: list[Block] = []
    faults: dict[int, str | None] = {}
    by_label = {trial.label: trial for trial in timing}
    paused = pauses_compared(timing)
    for number in sorted({trial.block for trial in timing if trial.block is not None}):
        launches = {trial.arm: trial for trial in timing if trial.block == number}
        if set(launches) != set(arms):
            continue
        figures = block_figures(launches, unit.unit, paused)
        if not figures or any(figure.value <= 0 for figure in figures.values()):
            continue
        order = sorted(launches, key=lambda arm: launches[arm].position or 0)
        faults[number] = machine_fault(launches)
        found.append(Block(number=number, order=order, figures=figures))
    sound = [block for block in found if not faults[block.number]]
    marked = []
    for block in found:
        fault = faults[block.number] or odd_block(
            block, [other for other in sound if other.number != block.number], by_label, unit.unit
        )
        marked.append(block.model_copy(update={"set_aside": fault}))
    return marked


def _unsettled(trials: Sequence[Trial], complete: set[int]) -> list[str]:
    """What is told of blocks in which an arm did not settle, so that they are not there."""
    restless = [t for t in trials if t.purpose == "timing" and t.outcome == "no-steady-state"]
    last = {t.block: t for t in restless if t.block is not None and t.block not in complete}
    return [f"block {number} left out: {t.arm} did not settle: {t.reason}" for number, t in last.items()]


def _pairs(blocks: Sequence[Block], reference: str, candidate: str, unit: UnitChoice) -> list[float]:
    return [
        log_ratio(block.figures[reference].value, block.figures[candidate].value, unit.unit)
        for block in blocks
        if not block.set_aside
    ]


def _contrast(blocks: Sequence[Block], reference: str, candidate: str, unit: UnitChoice) -> Contrast:
    log_ratios = _pairs(blocks, reference, candidate, unit)
    result = stats.interval(log_ratios)
    outcome = stats.decide(result) if unit.comparable else "undecided"
    counted = [block for block in blocks if not block.set_aside]
    bounds = (result.low, result.high) if result is not None and result.pairs > 1 else None
    return Contrast(
        reference=reference,
        candidate=candidate,
        outcome=outcome,
        ratio=result.ratio if result else None,
        interval=bounds,
        confidence=stats.CONFIDENCE,
        pairs=len(log_ratios),
        pair_ratios=[math.exp(value) for value in log_ratios],
        unit=unit.unit,
        unit_reason=unit.reason,
        reference_value=median(b.figures[reference].value for b in counted) if counted else None,
        candidate_value=median(b.figures[candidate].value for b in counted) if counted else None,
        sentence=speed_sentence(outcome, result, unit),
    )


_ABSURD = 100.0  # how far beyond an interval reaches says nothing more


def speed_sentence(outcome: str, result: stats.Interval | None, unit: UnitChoice) -> str:
    """One line, with what it rests on."""
    if not unit.comparable:
        return f"speed undecided: {unit.reason}"
    if result is None:
        return "speed undecided: no pair of launches could be compared"
    if result.pairs < 2:
        return f"speed undecided: one pair of launches only ({result.ratio:.2f}x)"
    wide = result.high > _ABSURD
    reach = f"{result.low:.2f} to over {_ABSURD:.0f}" if wide else f"{result.low:.2f}-{result.high:.2f}"
    bounds = f"{stats.CONFIDENCE:.0%} interval {reach}"
    basis = f"{bounds}, {result.pairs} pairs, {unit.unit}"
    if outcome == "faster":
        return f"{result.ratio:.2f}x as fast ({basis})"
    if outcome == "slower":
        return f"slower: {result.ratio:.2f}x the speed ({basis})"
    if outcome == "no-measurable-change":
        return f"no measurable change: {result.ratio:.3f}x ({basis})"
    why = f": {result.pairs} pairs that differ are too few to rule out no gain at all" if wide else ""
    return f"speed undecided at {result.ratio:.2f}x ({basis}){why}; more pairs may decide it"
