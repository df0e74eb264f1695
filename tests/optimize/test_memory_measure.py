"""What a measuring start says: the worst rank's peak, what a block keeps, and running out of memory."""

from __future__ import annotations

from typing import Any

from autotune.optimize.memory_measure import WITH_BLOCKS, limit_of, measure, peaks_of, request_of
from autotune.records.observation import (
    EnvironmentRecord,
    MemoryRecord,
    MemoryStep,
    Observation,
    RankObservation,
    StepRecord,
)

GIB = 2**30


def step(index: int, plain: int, peak: float, kept: float | None = None, **more: Any) -> MemoryStep:
    return MemoryStep(
        index=index, plain_blocks=plain, blocks=more.pop("blocks", 8), micro_batches=2,
        place=more.pop("place", "device"), peak_bytes=round(peak * GIB), resting_bytes=10 * GIB,
        kept_bytes=None if kept is None else round(kept * GIB), **more,
    )  # fmt: skip


def rank(number: int, steps: list[MemoryStep], **more: Any) -> RankObservation:
    return RankObservation(
        rank=number, world_size=2, status=more.pop("status", "stopped"), memory_steps=steps,
        environment=EnvironmentRecord(python="", torch="", device_type=more.pop("device", "cuda")),
        memory=MemoryRecord(**more),
        steps=[StepRecord(index=s.index, end_s=1.0, duration_ms=1.0) for s in steps],
    )  # fmt: skip


def job(*ranks: RankObservation) -> Observation:
    return Observation(
        mode="timing",
        command=[],
        cwd="/",
        exit_code=0,
        wall_s=1.0,
        ranks=list(ranks),
        expected_ranks=len(ranks),
    )


def test_a_block_counts_by_what_the_peak_rose_or_by_what_was_kept() -> None:
    rose = peaks_of(
        job(rank(0, [step(1, 0, 9), step(2, 0, 14), step(3, 1, 15.5, 1.2), step(4, 2, 17.5, 1.2)]))
    )
    assert rose is not None and rose.block_bytes == 2 * GIB
    # gradients that are not there yet when the first block runs backward: the peak hides what it keeps
    hidden = peaks_of(
        job(rank(0, [step(1, 0, 9), step(2, 0, 14), step(3, 1, 14, 1.2), step(4, 2, 14.1, 1.2)]))
    )
    assert hidden is not None and hidden.block_bytes == round(1.2 * GIB)
    assert (hidden.peak_bytes, hidden.resting_bytes, hidden.blocks) == (14 * GIB, 10 * GIB, 8)


def test_resident_memory_of_a_host_is_too_rough_for_a_block() -> None:
    steps = [step(1, 0, 2, place="host"), step(2, 0, 2, place="host"), step(3, 1, 2.4, 0.01, place="host")]
    found = peaks_of(job(rank(0, steps)))
    assert found is not None and found.block_bytes == round(0.01 * GIB)


def test_the_first_step_makes_the_states_and_does_not_count() -> None:
    found = peaks_of(job(rank(0, [step(1, 0, 99), step(2, 0, 14)])))
    assert found is not None and found.peak_bytes == 14 * GIB and found.block_bytes is None


def test_the_worst_rank_counts_and_a_missing_one_says_nothing() -> None:
    small, large = rank(0, [step(2, 0, 14)]), rank(1, [step(2, 0, 20)])
    worst = peaks_of(job(small, large))
    assert worst is not None and worst.peak_bytes == 20 * GIB
    assert peaks_of(job(small, large).model_copy(update={"expected_ranks": 3})) is None
    assert peaks_of(job(small, rank(1, []))) is None


class _Bench:
    """Gives back one recorded start."""

    def __init__(self, seen: Observation) -> None:
        self.seen = seen
        self.folder = None

    def run(self, request: Any, minutes_left: float | None = None) -> Any:
        from autotune.verify.launches import to_trial

        assert request.memory_probe == WITH_BLOCKS and request.longest_times >= 12
        return self.seen, to_trial(self.seen, request, "memory", "now", len(WITH_BLOCKS))


def _measured(*steps: MemoryStep, out_of_memory: bool) -> Any:
    from pathlib import Path

    from autotune.verify.arm import Arm

    seen = job(
        rank(0, list(steps), out_of_memory=out_of_memory, status="exception" if out_of_memory else "stopped")
    )
    arm = Arm(name="as it is", command=("python",), cwd=Path("/"))
    return measure(_Bench(seen), request_of(arm, micro_batches=2, blocks=True, seed=0))[0]  # type: ignore[arg-type]


def test_running_out_of_memory_with_a_plain_block_is_a_measurement() -> None:
    found = _measured(step(1, 0, 9), step(2, 0, 14), out_of_memory=True)
    assert found.out_of_memory and found.peaks is not None
    assert found.peaks.block_bytes is None  # it keeps more than there was
    second = _measured(step(1, 0, 9), step(2, 0, 14), step(3, 1, 15, 1.0), out_of_memory=True)
    assert second.peaks is not None and second.peaks.block_bytes == GIB


def test_running_out_of_memory_as_it_is_leaves_nothing_to_plan() -> None:
    found = _measured(step(1, 0, 9), out_of_memory=True)
    assert found.out_of_memory and found.peaks is None


def test_the_limit_is_the_smallest_device_or_a_share_of_the_host() -> None:
    devices = job(rank(0, [], device_bytes=80 * GIB), rank(1, [], device_bytes=40 * GIB))
    found = limit_of(devices, None)
    assert found is not None and found.bytes == 40 * GIB
    hosts = job(
        rank(0, [], host_bytes=32 * GIB, device="cpu"), rank(1, [], host_bytes=32 * GIB, device="cpu")
    )
    share = limit_of(hosts, None)
    assert share is not None and share.bytes == 16 * GIB
    asked = limit_of(hosts, 2.5)
    assert asked is not None and (asked.bytes, asked.source) == (round(2.5 * GIB), "--memory-limit")
    unknown = job(rank(0, [], host_bytes=32 * GIB))  # a device that does not tell its size
    assert limit_of(unknown, None) is None
