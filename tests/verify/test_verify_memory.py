"""The projected peak at the longest batch, on records as a GPU job leaves them."""

from __future__ import annotations

import pytest
from verify_records import evidence, observation, timing_trial

from autotune.records.observation import LoaderRecord, MemoryRecord, ModelRecord, Observation, OptimizerRecord
from autotune.records.verdict import ArmRecord, MemoryPeak
from autotune.verify.memory import headroom_fault, widened_overflows, worst_case_bytes

GIB = 2**30


def gpu_job(
    peak_gib: float, shapes: list[tuple[int, int]], longest: int, attention: str = "sdpa"
) -> Observation:
    """1 GiB of weights, 1 of gradients, 2 of optimizer states on an 80 GiB device."""
    seen = observation([100.0] * len(shapes))
    rank = seen.ranks[0]
    steps = [s.model_copy(update={"shapes": [shape]}) for s, shape in zip(rank.steps, shapes, strict=True)]
    model = ModelRecord(
        class_name="M",
        parameters=1,
        trainable_parameters=1,
        local_parameter_bytes=GIB,
        attn_implementation=attention,
    )
    changes = {
        "steps": steps,
        "model": model,
        "optimizers": [OptimizerRecord(class_name="AdamW", implementation="fused", state_bytes=2 * GIB)],
        "loaders": [LoaderRecord(batch_size=4, example_lengths=[100, longest])],
        "memory": MemoryRecord(device_bytes=80 * GIB, peak_allocated_bytes=round(peak_gib * GIB)),
    }
    return seen.model_copy(update={"ranks": [rank.model_copy(update=changes)]})


def arm(name: str, peak_gib: float, worst: int | None) -> ArmRecord:
    memory = MemoryPeak(allocated_bytes=round(peak_gib * GIB), device_bytes=80 * GIB)
    return ArmRecord(name=name, command=[], cwd="/", memory=memory, worst_case_bytes=worst)


def test_activations_grow_with_the_longest_batch() -> None:
    seen = gpu_job(24, [(4, 500), (4, 1000)], longest=3000)
    assert worst_case_bytes(seen) == (4 + 20 * 3) * GIB
    eager = gpu_job(24, [(4, 500), (4, 1000)], longest=3000, attention="eager")
    assert worst_case_bytes(eager) == (4 + 20 * 9) * GIB


def test_a_fixed_budget_has_no_worse_batch() -> None:
    assert worst_case_bytes(gpu_job(70, [(1, 8192)] * 6, longest=9000)) == 70 * GIB


def test_unknown_stays_unknown() -> None:
    assert worst_case_bytes(observation([100.0] * 5)) is None


def test_headroom_spent_beyond_the_device_is_a_risk() -> None:
    before = arm("baseline", 30, 40 * GIB)
    assert "79.0 of 80.0 GiB" in (headroom_fault(before, arm("patched", 45, 79 * GIB)) or "")
    assert headroom_fault(before, arm("patched", 45, 70 * GIB)) is None
    assert headroom_fault(before, arm("patched", 30, 79 * GIB)) is None  # spends nothing
    assert headroom_fault(arm("baseline", 30, 79 * GIB), arm("patched", 45, 79 * GIB)) is None
    assert headroom_fault(before, arm("patched", 45, None)) is None


@pytest.mark.parametrize(
    ("values", "peak_gib", "too_much"), [("v", 60, True), ("v", 30, False), (None, 60, False)]
)
def test_half_weights_that_would_not_fit_in_float32_are_known_beforehand(
    values: str | None, peak_gib: int, too_much: bool
) -> None:
    memory = MemoryPeak(allocated_bytes=peak_gib * GIB, device_bytes=80 * GIB)
    seen = evidence(record={"initial_values_digest": values})
    trial = timing_trial("baseline", 1, [100.0], memory=memory, label=seen.label, purpose="parity")
    assert widened_overflows(seen, [trial]) is too_much
