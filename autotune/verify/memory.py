"""What a changed job would need for the longest batch its data can make, projected from what it used.

A change that spends memory headroom may run for hours and fail at the one batch of the longest examples. The
projection keeps weights, gradients and optimizer states fixed and scales the rest with the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.records.observation import Observation, RankObservation
from autotune.records.verdict import ArmRecord, ParityEvidence, Trial

SAFE_FRAC = 0.95  # of the device; the rest goes to fragments and the CUDA context
SPENDS = 1.02  # candidate against baseline: below, no headroom was spent


def worst_case_bytes(observation: Observation) -> int | None:
    """Projected peak of the worst rank at its longest possible batch; None where something is unknown."""
    found = [_rank_worst_case(rank) for rank in observation.ranks]
    known = [value for value in found if value is not None]
    return max(known) if known and len(known) == len(found) else None


def _rank_worst_case(rank: RankObservation) -> int | None:
    memory, model = rank.memory, rank.model
    if memory is None or memory.peak_allocated_bytes is None or model is None:
        return None
    growth = _growth(rank)
    if growth is None or model.local_parameter_bytes is None:
        return None
    states = sum(optimizer.state_bytes or 0 for optimizer in rank.optimizers)
    fixed = 2 * model.local_parameter_bytes + states
    moving = max(0, memory.peak_allocated_bytes - fixed)
    if model.attn_implementation == "eager":
        growth *= growth  # the score matrix grows with the square of the length
    return round(memory.peak_allocated_bytes - moving + moving * growth)


def _growth(rank: RankObservation) -> float | None:
    """Tokens of the longest possible micro-batch against the longest one seen."""
    shapes = [shape for step in rank.steps for shape in step.shapes if len(shape) == 2]
    if not shapes:
        return None
    seen = max(rows * length for rows, length in shapes)
    if len({rows * length for rows, length in shapes}) == 1:
        return 1.0  # packed to a budget, or padded to one length
    longest = max(
        (max(loader.example_lengths) for loader in rank.loaders if loader.example_lengths), default=None
    )
    if longest is None:
        return None
    rows = max(shape[0] for shape in shapes)
    return max(1.0, rows * longest / seen)


def headroom_fault(baseline: ArmRecord, candidate: ArmRecord) -> str | None:
    """Why the candidate may run out of memory where the baseline does not; None when it may not."""
    device, worst = candidate.memory.device_bytes, candidate.worst_case_bytes
    used, before = candidate.memory.allocated_bytes, baseline.memory.allocated_bytes
    if device is None or worst is None or used is None or before is None or used <= SPENDS * before:
        return None
    limit = SAFE_FRAC * device
    if worst <= limit or (baseline.worst_case_bytes or 0) > limit:
        return None
    return (
        f"the longest batch would need about {worst / 2**30:.1f} of {device / 2**30:.1f} GiB "
        f"(the unchanged job used {before / 2**30:.1f}, the changed one {used / 2**30:.1f} so far)"
    )


def spends_headroom(baseline: ArmRecord, candidate: ArmRecord) -> bool:
    """The candidate holds more device memory than the baseline did."""
    used, before = candidate.memory.allocated_bytes, baseline.memory.allocated_bytes
    return used is not None and before is not None and used > SPENDS * before


def widened_overflows(baseline: ParityEvidence, trials: Sequence[Trial]) -> bool:
    """Half-precision weights, gradients and states take twice the memory in float32: more than there is."""
    if not any(rank.initial_values_digest is not None for rank in baseline.ranks):
        return False  # the job's weights are float32 already
    return any(
        trial.memory.allocated_bytes is not None
        and trial.memory.device_bytes is not None
        and 2 * trial.memory.allocated_bytes > SAFE_FRAC * trial.memory.device_bytes
        for trial in trials
        if trial.label == baseline.label
    )


def longest_tokens(observation: Observation) -> int | None:
    """Tokens of the longest example that was put first; None where the data set did not tell lengths."""
    found = [rank.counters.get("longest_first.tokens", 0.0) for rank in observation.ranks]
    return round(max(found)) if found and max(found) > 0 else None


def longest_batch_fault(trials: Sequence[Trial]) -> str | None:
    """The changed job ran out of memory when its longest examples came first."""
    for trial in trials:
        if trial.purpose == "longest" and trial.outcome == "crashed" and "out of memory" in trial.reason:
            size = f" ({trial.longest_tokens} tokens the longest)" if trial.longest_tokens else ""
            return f"{trial.arm} runs out of memory on the batch of the longest examples{size}"
    return None


def longest_batch_fits(trials: Sequence[Trial]) -> bool:
    """The batch of the longest examples was really tried, and fits: no projection is needed."""
    return any(t.purpose == "longest" and t.outcome == "finished" and t.longest_tokens for t in trials)
