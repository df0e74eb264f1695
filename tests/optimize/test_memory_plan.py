"""The arithmetic of memory plans, on numbers of an 80 GiB device and of a small host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.optimize.memory_plan import Candidate, Costs, MemoryNow, predicted_peak, search

GIB = 2**30


def now(**changes: int | None) -> MemoryNow:
    """40 GiB at rest, 8 more at the peak, 32 checkpointed blocks of 1 GiB, four micro-batches to a step."""
    values: dict[str, int | None] = {
        "limit_bytes": 80 * GIB,
        "peak_bytes": 48 * GIB,
        "resting_bytes": 40 * GIB,
        "micro_batches": 4,
        "blocks": 32,
        "block_bytes": GIB,
    }
    return MemoryNow(**{**values, **changes})  # type: ignore[arg-type]


def first(state: MemoryNow, costs: Costs | None = None) -> Candidate:
    return search(state, costs or Costs()).candidates[0]


def test_as_many_blocks_go_without_as_fit_beside_the_margin() -> None:
    # 72 GiB may be used: 48 are, so 24 blocks of 1 GiB fit
    best = first(now())
    assert (best.checkpointed, best.times, best.peak_bytes) == (8, 1, 72 * GIB)
    assert best.saved_frac == pytest.approx(1 / 3 * 24 / 32)
    assert best.words(32) == "8 of 32 blocks checkpointed"


def test_off_where_all_fit_and_on_where_none_does() -> None:
    off = first(now(block_bytes=GIB // 4))
    assert off.checkpointed == 0 and off.words(32) == "no block checkpointed"
    full = search(now(limit_bytes=54 * GIB), Costs())
    assert [c for c in full.candidates if c.checkpointed < 32] == []


def test_the_measured_recompute_bounds_the_gain() -> None:
    assert first(now(), Costs(recompute_frac=0.2)).saved_frac == pytest.approx(0.2 * 0.75)


def test_idle_time_asks_for_larger_micro_batches() -> None:
    """Four times the micro-batch takes 40 + 4 x 8 = 72 GiB: it fits to the byte, all blocks checkpointed."""
    best = first(now(), Costs(idle_frac=0.6, recompute_frac=0.1))
    assert (best.times, best.checkpointed) == (2, 24)  # and 2 x 8 blocks beside twice the rest
    biggest = [c for c in search(now(), Costs(idle_frac=0.6)).candidates if c.times == 4]
    assert [(c.checkpointed, c.peak_bytes) for c in biggest] == [(32, 72 * GIB)]
    assert not [c for c in search(now(peak_bytes=49 * GIB), Costs()).candidates if c.times == 4]


def test_without_accumulation_the_global_batch_is_left_to_a_person() -> None:
    found = search(now(micro_batches=1), Costs(idle_frac=0.6))
    assert {c.times for c in found.candidates} == {1}
    assert any("global batch" in note for note in found.notes)


def test_an_odd_number_of_micro_batches_is_divided_exactly() -> None:
    assert {c.times for c in search(now(micro_batches=3), Costs()).candidates} == {1, 3}
    assert {c.times for c in search(now(micro_batches=7, peak_bytes=41 * GIB), Costs()).candidates} == {1, 7}


def test_checkpointing_is_switched_on_for_a_larger_micro_batch_only() -> None:
    """40 at rest, 30 of activations, 24 layers keep 1.2 of it each: twice the micro-batch fits without."""
    off = {
        "peak_bytes": 70 * GIB,
        "blocks": 0,
        "block_bytes": None,
        "layers": 24,
        "layer_bytes": int(1.2 * GIB),
    }
    found = [c for c in search(now(**off), Costs(idle_frac=0.5)).candidates if c.switch_on]
    assert {c.times for c in found} == {2, 4} and {c.checkpointed for c in found} == {24}
    twice = next(c for c in found if c.times == 2)
    assert twice.peak_bytes / GIB == pytest.approx(40 + 2 * (30 - 23 * 1.2), abs=0.01)
    assert twice.saved_frac == pytest.approx(0.5 - 0.2 * 0.5)
    assert twice.words(0).startswith("all 24 layers checkpointed; micro-batches 2 times as large")
    for costs in (Costs(idle_frac=0.1), Costs()):  # a busy device would only compute more
        assert not [c for c in search(now(**off), costs).candidates if c.switch_on]
    roomy = now(**{**off, "peak_bytes": 45 * GIB})  # 4 x 5 + 40 fits as it is
    assert not [c for c in search(roomy, Costs(idle_frac=0.5)).candidates if c.switch_on]


def test_what_is_not_measured_is_not_guessed() -> None:
    found = search(now(block_bytes=None), Costs(idle_frac=0.2))
    assert {c.checkpointed for c in found.candidates} == {32}
    assert any("could not be measured" in note for note in found.notes)
    only_micro = search(now(block_bytes=None), Costs())
    assert {c.saved_frac for c in only_micro.candidates} == {None}


def test_a_job_over_its_limit_has_no_plan() -> None:
    found = search(now(limit_bytes=50 * GIB), Costs(idle_frac=0.5))
    assert found.candidates == ()
    assert any("no headroom" in note for note in found.notes)


def test_gathering_and_offloading_share_the_headroom() -> None:
    state = now(gather_bytes=10 * GIB, onload_bytes=20 * GIB)
    costs = Costs(exposed_frac=0.4, offload_frac=0.5, idle_frac=0.0)
    best = first(state, costs)
    assert best.onload and best.peak_bytes <= 72 * GIB
    both = [c for c in search(state, costs).candidates if c.onload and c.keep_gathered]
    assert both == []  # 48 + 10 + 20 is more than 72
    gathered = next(c for c in search(state, costs).candidates if c.keep_gathered and c.times == 1)
    assert gathered.checkpointed == 32 - 14
    assert "parameters stay gathered" in gathered.words(32)


def test_smaller_plans_follow_for_the_case_that_a_trial_shows_otherwise() -> None:
    plain = [32 - c.checkpointed for c in search(now(micro_batches=1), Costs()).candidates]
    assert plain == [24, 18, 12, 6]


@given(
    limit=st.integers(1, 200),
    peak=st.integers(1, 200),
    rest=st.integers(0, 200),
    micro=st.integers(1, 24),
    blocks=st.integers(0, 80),
    block=st.one_of(st.none(), st.integers(0, 20)),
    idle=st.one_of(st.none(), st.floats(0, 1)),
)
def test_every_plan_fits_and_keeps_the_global_batch(
    limit: int, peak: int, rest: int, micro: int, blocks: int, block: int | None, idle: float | None
) -> None:
    state = MemoryNow(
        limit_bytes=limit * GIB, peak_bytes=peak * GIB, resting_bytes=min(rest, peak) * GIB,
        micro_batches=micro, blocks=blocks, block_bytes=None if block is None else block * GIB,
    )  # fmt: skip
    for plan in search(state, Costs(idle_frac=idle)).candidates:
        assert plan.peak_bytes <= state.budget_bytes
        assert micro % plan.times == 0 and 0 <= plan.checkpointed <= blocks
        assert plan.peak_bytes == predicted_peak(state, blocks - plan.checkpointed, plan.times)
        assert plan.ratio_upper is None or plan.ratio_upper >= 1.0
        assert (plan.checkpointed, plan.times) != (blocks, 1)
