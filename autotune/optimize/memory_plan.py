"""Which plans the memory of a job allows: one headroom, shared by all that spends it. Pure arithmetic.

In go measured numbers: the peak and the resting memory of a step with the longest batch, and what one block
keeps when it is not checkpointed. What grows with the micro-batch is the difference of the first two; blocks
without checkpointing come on top. The global batch never changes: a micro-batch grows only as accumulation
shrinks.
"""

from __future__ import annotations

from dataclasses import dataclass

MARGIN_FRAC = 0.10  # stays free: fragments, workspaces, the device's own context
FULL_RECOMPUTE_FRAC = 1 / 3  # of a step at most: forward, forward again, and a backward no shorter
LEAST_RECOMPUTE_FRAC = 0.2  # of the time at work: what checkpointing all layers costs at least
_STEPS_DOWN = (
    1.0,
    0.75,
    0.5,
    0.25,
)  # of the most blocks that fit: what is tried when a trial shows otherwise
_MOST_SAVED = 0.95


@dataclass(frozen=True, kw_only=True)
class MemoryNow:
    """One rank of the job as it is; bytes."""

    limit_bytes: int
    peak_bytes: int  # of a step with the longest batch
    resting_bytes: int  # at its end: parameters, gradients, optimizer states
    micro_batches: int  # of a step
    blocks: int = 0  # checkpointed ones
    block_bytes: int | None = None  # what one keeps without checkpointing; None: not measured
    layers: int = 0  # where nothing is checkpointed: those that could be
    layer_bytes: int | None = None  # what one of them keeps
    gather_bytes: int | None = None  # parameters kept gathered after the forward; None: no such choice
    onload_bytes: int | None = None  # what offloading keeps in host memory; None: nothing is offloaded

    @property
    def budget_bytes(self) -> int:
        """What a plan may take."""
        return int(self.limit_bytes * (1.0 - MARGIN_FRAC))


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Shares of the step that a plan can save at most; None: not known."""

    recompute_frac: float | None = None
    idle_frac: float | None = None  # the device waits for work
    exposed_frac: float | None = None  # the device waits for communication
    offload_frac: float | None = None


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One plan: how many blocks stay checkpointed, how many micro-batches become one, and two switches."""

    checkpointed: int
    times: int = 1
    switch_on: bool = False  # checkpointing is off now
    keep_gathered: bool = False
    onload: bool = False
    peak_bytes: int  # predicted, with the longest batch
    saved_frac: float | None  # of the step, at most; None: no bound is known

    @property
    def ratio_upper(self) -> float | None:
        """Old step time over the new one, at most."""
        return None if self.saved_frac is None else 1.0 / (1.0 - self.saved_frac)

    def words(self, blocks: int) -> str:
        """What the plan does, for the journal."""
        parts = []
        if self.switch_on:
            parts.append(f"all {self.checkpointed} layers checkpointed")
        elif self.checkpointed < blocks:
            kept = f"{self.checkpointed} of {blocks} blocks checkpointed"
            parts.append(kept if self.checkpointed else "no block checkpointed")
        if self.times > 1:
            parts.append(f"micro-batches {self.times} times as large, accumulation divided by {self.times}")
        if self.keep_gathered:
            parts.append("parameters stay gathered after the forward")
        if self.onload:
            parts.append("nothing offloaded")
        return "; ".join(parts) or "as it is"


@dataclass(frozen=True)
class Search:
    """Candidates, best first, and what was left out and why."""

    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...]


def search(now: MemoryNow, costs: Costs) -> Search:
    """All plans that are predicted to fit, the largest bound first; the plan as it is is none of them."""
    found: dict[tuple[int, int, bool, bool], Candidate] = {}
    for times in _divisors(now.micro_batches):
        for gathered in (False, True) if now.gather_bytes is not None else (False,):
            for onload in (False, True) if now.onload_bytes is not None else (False,):
                for plain in _plain_blocks(now, times, gathered, onload):
                    if plain or times > 1 or gathered or onload:
                        candidate = _candidate(now, costs, plain, times, gathered, onload)
                        found[plain, times, gathered, onload] = candidate
    more = [plan for times in _divisors(now.micro_batches) if (plan := _switched_on(now, costs, times))]
    known_idle = costs.idle_frac is not None or costs.exposed_frac is not None

    def rank(plan: Candidate) -> tuple[float, int, int]:
        # A larger micro-batch pays where the device waits; where nobody knows, the smaller change goes first.
        return -(plan.saved_frac or 0.0), -plan.times if known_idle else plan.times, plan.checkpointed

    return Search(tuple(sorted([*found.values(), *more], key=rank)), tuple(_notes(now)))


def predicted_peak(
    now: MemoryNow, plain: int, times: int = 1, gathered: bool = False, onload: bool = False
) -> int:
    """Bytes of a step with the longest batch under a plan."""
    moving = max(0, now.peak_bytes - now.resting_bytes)
    fixed = now.resting_bytes
    fixed += (now.gather_bytes or 0) if gathered else 0
    fixed += (now.onload_bytes or 0) if onload else 0
    return fixed + times * (moving + plain * (now.block_bytes or 0))


def _plain_blocks(now: MemoryNow, times: int, gathered: bool, onload: bool) -> list[int]:
    """Numbers of blocks that may go without checkpointing, most first; empty where even none fits."""
    free = now.budget_bytes - predicted_peak(now, 0, times, gathered, onload)
    if free < 0:
        return []
    if not now.blocks or now.block_bytes is None:
        return [0]
    most = now.blocks if not now.block_bytes else min(now.blocks, free // (now.block_bytes * times))
    return list(dict.fromkeys([*(int(most * share) for share in _STEPS_DOWN), 0]))


def _candidate(
    now: MemoryNow, costs: Costs, plain: int, times: int, gathered: bool, onload: bool
) -> Candidate:
    saved: list[float | None] = []
    if plain:
        full = FULL_RECOMPUTE_FRAC if costs.recompute_frac is None else costs.recompute_frac
        saved.append(full * plain / now.blocks)
    if times > 1:
        saved.append(costs.idle_frac)
        saved.append((costs.exposed_frac or 0.0) * (1.0 - 1.0 / times))
    if gathered:  # at most half of the exposed communication are the second gathers
        saved.append(None if costs.exposed_frac is None else 0.5 * costs.exposed_frac)
    if onload:
        saved.append(costs.offload_frac)
    known = [share for share in saved if share is not None]
    bounded = len(known) == len(saved) or sum(known) > 0.0
    return Candidate(
        checkpointed=now.blocks - plain,
        times=times,
        keep_gathered=gathered,
        onload=onload,
        peak_bytes=predicted_peak(now, plain, times, gathered, onload),
        saved_frac=min(_MOST_SAVED, sum(known)) if bounded else None,
    )


def _switched_on(now: MemoryNow, costs: Costs, times: int) -> Candidate | None:
    """Checkpointing for the sake of a larger micro-batch: only where that does not fit without it.

    It pays where the idle time that may vanish outweighs what the recomputed forwards cost at least.
    """
    if times < 2 or now.blocks or now.layers < 2 or not now.layer_bytes or costs.idle_frac is None:
        return None
    if predicted_peak(now, 0, times) <= now.budget_bytes:
        return None
    moving = max(0, now.peak_bytes - now.resting_bytes)
    freed = min(moving, (now.layers - 1) * now.layer_bytes)  # one layer at a time is there for its backward
    peak = now.resting_bytes + times * (moving - freed)
    saved = costs.idle_frac - LEAST_RECOMPUTE_FRAC * (1.0 - costs.idle_frac)
    if peak > now.budget_bytes or saved <= 0.0:
        return None
    return Candidate(
        checkpointed=now.layers,
        times=times,
        switch_on=True,
        peak_bytes=peak,
        saved_frac=min(_MOST_SAVED, saved),
    )


def _notes(now: MemoryNow) -> list[str]:
    notes = []
    if now.peak_bytes > now.budget_bytes:
        notes.append(
            f"the job itself takes more than {1 - MARGIN_FRAC:.0%} of the memory: there is no headroom"
        )
    if now.blocks and now.block_bytes is None:
        notes.append("what a block keeps without checkpointing could not be measured, so checkpointing stays")
    if now.micro_batches <= 1:
        notes.append(
            "the micro-batch is not grown: without accumulation that changes the global batch, "
            "which is for you to decide"
        )
    return notes


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, max(1, number) + 1) if max(1, number) % d == 0]
