"""Which GPUs a job may use, and what NVML's bits say. Sampling itself needs a GPU."""

from __future__ import annotations

import os
import time

import pytest

from autotune.observe.nvml import DeviceSampler, throttle_names, visible_devices

UUIDS = ["GPU-aa11", "GPU-bb22", "GPU-bc33"]


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        (None, [0, 1, 2]), ("", []), ("1", [1]), ("2,0", [2, 0]), ("GPU-bb", [1]), ("GPU-b", []),
        ("0,-1,1", [0]), ("0,7,1", [0]), (" 1 , 2", [1, 2]),
    ],
)  # fmt: skip
def test_visible_devices(text: str | None, devices: list[int]) -> None:
    env = {} if text is None else {"CUDA_VISIBLE_DEVICES": text}
    assert visible_devices(env, 3, UUIDS) == devices


def test_idle_is_not_throttling() -> None:
    assert throttle_names(0x1) == []
    assert throttle_names(0x1 | 0x4 | 0x40) == ["sw_power_cap", "hw_thermal"]


@pytest.mark.gpu
def test_samples_of_a_real_gpu() -> None:
    sampler = DeviceSampler({}, set)
    sampler.start()
    time.sleep(1.0)
    samples = sampler.stop()
    if not samples and not os.path.exists("/dev/nvidiactl"):
        pytest.skip("no NVIDIA GPU")
    assert len(samples) >= 5
    assert samples[0].sm_clock_mhz and samples[0].sm_clock_max_mhz and samples[0].memory_used_gib
    assert samples[-1].at_s - samples[0].at_s > 0.4
