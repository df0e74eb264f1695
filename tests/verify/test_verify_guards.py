"""Guards of the machine, on what NVML showed during a real comparison on an H200."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from test_verify_comparison import Replay, arms

from autotune.observe.spec import LaunchSpec
from autotune.records.observation import DeviceSample, Observation
from autotune.verify.arm import VerifyOptions
from autotune.verify.guards import machine_state
from autotune.verify.trial import run_comparison

RECORDED = json.loads((Path(__file__).parent / "recorded" / "h200_samples.json").read_text())
Touch = Callable[[DeviceSample], DeviceSample]


def samples(arm: str, block: int) -> list[DeviceSample]:
    return [DeviceSample(**{"gpu": 0, **row}) for row in RECORDED[arm][str(min(block, 3))]]


def another_process(sample: DeviceSample) -> DeviceSample:
    return sample.model_copy(update={"foreign_processes": 1 if sample.at_s > 20 else 0})


def slower_clock(sample: DeviceSample) -> DeviceSample:
    return sample.model_copy(update={"sm_clock_mhz": 0.88 * (sample.sm_clock_mhz or 0.0)})


def hot(sample: DeviceSample) -> DeviceSample:
    return sample.model_copy(update={"throttle_reasons": ["hw_thermal"]})


def not_told(sample: DeviceSample) -> DeviceSample:
    return sample.model_copy(update={"throttle_reasons": None, "foreign_processes": None})


def compare(
    folder: Path, block: int = 0, touch: Touch | None = None, slow: float = 1.0
) -> tuple[list[str], int]:
    """Notes of a comparison in which one launch of the patched job met something, and its blocks."""

    def change(spec: LaunchSpec, seen: Observation) -> Observation:
        if spec.mode != "timing":
            return seen
        number = int(spec.folder.name.split("-")[1])
        arm = "patched" if spec.command[1] == "fast.py" else "baseline"
        found = samples(arm, number)
        if arm == "patched" and number == block:
            found = [touch(sample) for sample in found] if touch else found
            steps = [s.model_copy(update={"duration_ms": slow * s.duration_ms}) for s in seen.ranks[0].steps]
            seen = seen.model_copy(update={"ranks": [seen.ranks[0].model_copy(update={"steps": steps})]})
        return seen.model_copy(update={"device_samples": found})

    replay = Replay({"slow.py": 100, "fast.py": 88}, change=change)
    options = VerifyOptions(tier=None, min_pairs=4, max_pairs=4)
    verdict = run_comparison(arms(warmed=True), folder=folder, options=options, launch=replay)
    assert verdict.outcome == "faster" and verdict.pairs == 4
    return verdict.notes, len(verdict.blocks)


def test_a_quiet_gpu_sets_nothing_aside(tmp_path: Path) -> None:
    """Its power cap and its idle clocks are no faults."""
    assert compare(tmp_path) == ([], 4)
    assert compare(tmp_path / "silent", 2, not_told) == ([], 4)


@pytest.mark.parametrize(
    ("touch", "slow", "words"),
    [
        (another_process, 1.0, "another process used the GPU while patched ran"),
        (hot, 1.0, "hw_thermal"),
        (slower_clock, 1.0, "the GPU clock was -1"),
        (None, 1.6, "patched stalled: 1.6"),
    ],
    ids=["foreign process", "heat", "clock", "stall"],
)
def test_a_disturbed_pair_is_set_aside_said_and_run_again(
    tmp_path: Path, touch: Touch | None, slow: float, words: str
) -> None:
    notes, blocks = compare(tmp_path, 2, touch, slow)
    assert blocks == 5 and len(notes) == 1
    assert notes[0].startswith("block 2 set aside: ") and words in notes[0]


def test_only_samples_under_load_tell_the_clock() -> None:
    state = machine_state(samples("baseline", 1))
    assert state.foreign_processes == 0 and state.throttle_reasons in ([], ["sw_power_cap"])
    assert 1900 < (state.sm_clock_mhz or 0) <= 1980
