"""One start of a job that measures its memory, longest batch first; and what it means for a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.optimize.memory_plan import MemoryNow

if TYPE_CHECKING:
    from autotune.records.observation import MemoryStep, Observation, RankObservation
    from autotune.records.verdict import Trial
    from autotune.verify.arm import Arm
    from autotune.verify.launches import Bench, Request

# Blocks that run without checkpointing in each step. The first step makes the optimizer's states and does not
# count; the last one shows whether the peak is what it was.
WITH_BLOCKS = (0, 0, 1, 2, 0)
AS_IT_IS = (0, 0, 0)
_LONGEST_BATCHES = 8
_GIB = 1024.0**3


@dataclass(frozen=True)
class Limit:
    """The memory one rank may use, and where that is from."""

    bytes: int
    source: str


@dataclass(frozen=True)
class Peaks:
    """What a measuring start saw of its worst rank; bytes."""

    peak_bytes: int
    resting_bytes: int
    blocks: int
    block_bytes: int | None
    micro_batches: int
    longest_tokens: int | None  # None: the longest examples could not be put first
    layers: int = 0  # of a model that checkpoints nothing
    layer_bytes: int | None = None

    def now(self, limit: Limit, **more: int | None) -> MemoryNow:
        """The input of a search; `more`: gather_bytes and onload_bytes."""
        return MemoryNow(
            limit_bytes=limit.bytes,
            peak_bytes=self.peak_bytes,
            resting_bytes=self.resting_bytes,
            micro_batches=self.micro_batches,
            blocks=self.blocks,
            block_bytes=self.block_bytes,
            layers=self.layers,
            layer_bytes=self.layer_bytes,
            **more,
        )


@dataclass(frozen=True)
class Measurement:
    """The outcome of a measuring start: peaks, or why there are none."""

    peaks: Peaks | None
    out_of_memory: bool = False
    reason: str = ""


def request_of(arm: Arm, *, micro_batches: int, blocks: bool, seed: int | None) -> Request:
    """The start that measures. `blocks`: also with one and two blocks that run without checkpointing."""
    from autotune.verify.launches import Request

    schedule = WITH_BLOCKS if blocks else AS_IT_IS
    batches = max(_LONGEST_BATCHES, (len(schedule) + 1) * micro_batches)
    return Request(purpose="memory", arm=arm, seed=seed, memory_probe=schedule, longest_times=batches)


def measure(bench: Bench, request: Request, minutes_left: float | None = None) -> tuple[Measurement, Trial]:
    """Make the start once.

    Running out of memory is an outcome: the steps before it count, and so does that the next one did not fit.
    """
    from autotune.verify.memory import longest_tokens

    observation, trial = bench.run(request, minutes_left)
    short = "out of memory" in trial.reason
    peaks = peaks_of(observation, longest_tokens(observation))
    plain = _failed_with_plain_blocks(observation, request.memory_probe)
    return _outcome(peaks, trial, short and not plain), trial


def _outcome(peaks: Peaks | None, trial: Trial, did_not_fit: bool) -> Measurement:
    short = "out of memory" in trial.reason
    if peaks is None or did_not_fit:
        return Measurement(None, short, trial.reason or "the start reported no memory")
    return Measurement(peaks, short, trial.reason if short else "")


def peaks_of(observation: Observation, tokens: int | None = None) -> Peaks | None:
    """The worst rank's peaks from the second step on; None where no step was measured."""
    ranks = [found for rank in observation.ranks if (found := _of_rank(rank, tokens)) is not None]
    if not ranks or len(ranks) < observation.expected_ranks:
        return None
    worst = max(ranks, key=lambda rank: rank.peak_bytes)
    kept = [rank.block_bytes for rank in ranks if rank.block_bytes is not None]
    return Peaks(
        worst.peak_bytes,
        worst.resting_bytes,
        max(rank.blocks for rank in ranks),
        max(kept) if len(kept) == len(ranks) else None,
        worst.micro_batches,
        tokens,
        worst.layers,
        worst.layer_bytes,
    )


def _of_rank(rank: RankObservation, tokens: int | None) -> Peaks | None:
    steps = [step for step in rank.memory_steps if step.index > 1]
    plain = [step for step in steps if not step.plain_blocks]
    if not plain:
        return None
    peak = max(step.peak_bytes for step in plain)
    resting = [step.resting_bytes for step in plain if step.resting_bytes is not None]
    return Peaks(
        peak,
        min(peak, max(resting)) if resting else 0,  # unknown: as if everything grew with the micro-batch
        max(step.blocks for step in steps),
        _block_bytes(steps, peak),
        max(step.micro_batches for step in plain),
        tokens,
        max((step.layers or 0 for step in steps), default=0),
        # a larger figure would promise room that checkpointing does not make
        min((step.layer_bytes for step in steps if step.layer_bytes is not None), default=None),
    )


def _block_bytes(steps: list[MemoryStep], peak: int) -> int | None:
    """What one block keeps: what autograd saved, or what the device's peak rose by, whichever is more.

    The peak alone may rise by less, where it lies at another moment than the one the block adds to.
    """
    kept = [step.kept_bytes for step in steps if step.kept_bytes is not None]
    if not kept:
        return None
    found = max(kept)
    before = peak
    for step in sorted((s for s in steps if s.plain_blocks), key=lambda s: s.plain_blocks):
        if step.place == "device":
            found = max(found, step.peak_bytes - before)
            before = step.peak_bytes
    return found


def _failed_with_plain_blocks(observation: Observation, schedule: tuple[int, ...]) -> bool:
    """The step that ran out of memory was one with blocks that ran without checkpointing."""
    done = min((len(rank.memory_steps) for rank in observation.ranks), default=0)
    return done < len(schedule) and schedule[done] > 0


def limit_of(observation: Observation, limit_gib: float | None) -> Limit | None:
    """What a rank may use: what was asked for, the smallest device, or its share of the host."""
    if limit_gib is not None:
        return Limit(round(limit_gib * _GIB), "--memory-limit")
    records = [rank.memory for rank in observation.ranks if rank.memory is not None]
    devices = [record.device_bytes for record in records if record.device_bytes]
    if devices:
        return Limit(min(devices), "the device's memory")
    hosts = [record.host_bytes for record in records if record.host_bytes]
    on_cpu = all(rank.environment.device_type == "cpu" for rank in observation.ranks)
    if hosts and on_cpu:
        return Limit(min(hosts) // max(1, len(records)), "a rank's share of the host's memory")
    return None
