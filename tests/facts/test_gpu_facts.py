"""Facts that only a GPU brings, from a job watched on an H200 and from recorded traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from statistics import median

import pytest

from autotune.analyze.endurance import watch_report
from autotune.data import data_dir
from autotune.facts.everything import derive_facts
from autotune.records.facts import FactSheet
from autotune.records.observation import DeviceSample, Observation, SegmentRecord
from autotune.trace.summary import summarize
from autotune.verify.guards import machine_state

RECORDED = Path(__file__).parent / "recorded" / "h200_one_gpu.json.gz"
TRACES = Path(__file__).resolve().parents[1] / "traces"


@pytest.fixture(scope="module")
def observation() -> Observation:
    return Observation.model_validate_json(gzip.decompress(RECORDED.read_bytes()))


def _during(observation: Observation) -> list[DeviceSample]:
    steps = [s for s in observation.ranks[0].steps if not {"first", "profiled"} & set(s.tags)]
    begin, end = steps[0].end_s - steps[0].duration_ms / 1e3, steps[-1].end_s
    return [s for s in observation.device_samples if begin <= s.at_s <= end]


def test_clocks_power_and_throttling_of_a_real_run(observation: Observation) -> None:
    facts = derive_facts(observation, None)
    samples = _during(observation)
    held = [s for s in samples if s.throttle_reasons]
    assert len(samples) > 200 and 0 < len(held) < len(samples)
    assert facts.value("device.throttled_frac") == pytest.approx(len(held) / len(samples))
    assert facts.value("device.throttle_reasons") == [f"sw power cap ({len(held) / len(samples):.0%})"]
    assert facts.value("device.power_w") == median(s.power_w for s in samples if s.power_w is not None)
    assert facts.value("device.temperature_c") == max(s.temperature_c or 0 for s in samples)
    assert 0.5 < facts.value("device.sm_clock_frac") <= 1.0
    assert 40 < facts.value("device.memory_used_gib") < 141
    assert facts.value("device.foreign_processes") is not None


def test_a_gpu_that_does_not_tell_is_not_unthrottled(observation: Observation) -> None:
    silent = [
        s.model_copy(update={"throttle_reasons": None, "power_w": None}) for s in observation.device_samples
    ]
    facts = derive_facts(observation.model_copy(update={"device_samples": silent}), None)
    assert facts.facts["device.throttled_frac"].state == "absent"
    assert facts.facts["device.power_w"].state == "absent"
    assert facts.value("device.utilisation_frac") is not None
    assert machine_state(silent).throttle_reasons == []


def test_transfers_and_the_allocator_of_a_real_run(observation: Observation) -> None:
    rank = observation.ranks[0]
    facts = derive_facts(observation, None)
    assert facts.value("data.to_device_ms") == pytest.approx(rank.counters["to_device_ms"] / len(rank.steps))
    assert facts.value("memory.allocator_retries") == 0
    assert rank.memory is not None
    pressed = rank.memory.model_copy(update={"allocator_retries": 3})
    other = observation.model_copy(update={"ranks": [rank.model_copy(update={"memory": pressed})]})
    assert derive_facts(other, None).value("memory.allocator_retries") == 3
    unknown = rank.memory.model_copy(update={"allocator_retries": None})
    other = observation.model_copy(update={"ranks": [rank.model_copy(update={"memory": unknown})]})
    assert derive_facts(other, None).facts["memory.allocator_retries"].state == "absent"


def test_old_cuda_and_profiler_are_told(observation: Observation) -> None:
    assert derive_facts(observation, None).value("env.stale_packages") == []
    rank = observation.ranks[0]
    packages = {**rank.environment.packages, "torch": "2.5.1", "nvidia-cuda-cupti-cu11": "11.8.87"}
    old = rank.environment.model_copy(update={"packages": packages, "cuda": "11.8"})
    facts = derive_facts(
        observation.model_copy(update={"ranks": [rank.model_copy(update={"environment": old})]}), None
    )
    told = facts.value("env.stale_packages")
    assert isinstance(told, list) and [text.split(" (")[0] for text in told] == [
        "torch 2.5.1", "cuda 11.8", "cupti 11.8.87",
    ]  # fmt: skip
    assert facts.value("env.cupti") == "11.8.87"


def test_a_watched_run_tells_of_the_power_limit(observation: Observation) -> None:
    """The samples of the H200 run beside ten stretches of its steps."""
    rank = observation.ranks[0]
    stretches = [
        SegmentRecord(
            first_step=i + 1, last_step=i + 1, start_s=s.end_s - s.duration_ms / 1e3, end_s=s.end_s,
            steps=1, total_ms=s.duration_ms, median_ms=s.duration_ms,
        )
        for i, s in enumerate(rank.steps)
    ]  # fmt: skip
    watched = observation.model_copy(
        update={"mode": "watch", "ranks": [rank.model_copy(update={"segments": stretches})]}
    )
    report = watch_report(watched)
    (remark,) = [remark for remark in report.remarks if remark.kind == "throttling"]
    busy = [s for s in observation.device_samples if (s.utilisation_frac or 0.0) > 0.3]
    share = sum(bool(s.throttle_reasons) for s in busy) / len(busy)
    assert remark.gpu == 0 and remark.figures["share_frac"] == pytest.approx(share)
    assert "sw power cap" in remark.text and "of the highest clock" in remark.text


def _facts_of(name: str) -> tuple[FactSheet, list[dict[str, object]]]:
    """Facts of a one-step trace, and its events as they stand in the file."""
    path = TRACES / f"{name}.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return derive_facts(
        None, summarize([path], tables_dir=data_dir("rules") / "_tables", processes=1)
    ), events


def test_blocking_copies_to_the_device() -> None:
    facts, events = _facts_of("h200_qwen35_2b4_packed_varlen_1step")
    pageable = [e["dur"] for e in events if e.get("name") == "Memcpy HtoD (Pageable -> Device)"]
    assert len(pageable) == 6
    assert facts.value("data.h2d_blocking_ms") == pytest.approx(sum(pageable) / 1e3, rel=1e-3)  # type: ignore[arg-type]


def test_bytes_and_groups_of_the_collectives() -> None:
    facts, events = _facts_of("a100_2rank_ddp_nccl_args_rank0")
    sizes = {"Float": 4, "Long": 8, "Int": 4, "Byte": 1, "BFloat16": 2, "Half": 2}
    calls = [a for e in events if e.get("cat") == "kernel" and "Collective name" in (a := e.get("args", {}))]
    assert len(calls) > 20
    total = sum(max(a["In msg nelems"], a["Out msg nelems"]) * sizes[a["dtype"]] for a in calls)  # type: ignore[index]
    steps = facts.value("comm.collectives_per_step")
    assert isinstance(steps, float)
    found = facts.value("comm.gib_per_step")
    assert isinstance(found, float) and found * 2**30 == pytest.approx(total / (len(calls) / steps), rel=0.01)
    assert facts.value("comm.group_sizes") == ["2"]
