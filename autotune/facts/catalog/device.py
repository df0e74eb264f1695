"""The hardware."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact("device.name", "str", "", "Name of the device", "probe"),
    Fact(
        "device.vendor", "str", "", "Maker of the device", "probe", choices=("nvidia", "amd", "cpu", "other")
    ),
    Fact("device.count", "int", "count", "Devices the job uses", "probe"),
    Fact("device.compute_capability", "float", "", "CUDA compute capability", "probe"),
    Fact("device.peak_tflops", "float", "tflops", "Dense peak at the GEMMs' precision", "table"),
    Fact(
        "device.throttled_frac",
        "float",
        "frac",
        "Share of samples in which the GPU was throttled",
        "nvml",
        decided_by="run the job on an NVIDIA GPU with NVML",
    ),
    Fact(
        "device.throttle_reasons",
        "list",
        "",
        "Why the GPU was held back, with the share of samples",
        "nvml",
        decided_by="run the job on an NVIDIA GPU with NVML",
    ),
    Fact(
        "device.power_w",
        "float",
        "watt",
        "Power drawn by a GPU, median",
        "nvml",
        decided_by="run the job on an NVIDIA GPU with NVML",
    ),
    Fact(
        "device.temperature_c",
        "float",
        "celsius",
        "Highest temperature of a GPU",
        "nvml",
        decided_by="run the job on an NVIDIA GPU with NVML",
    ),
    Fact(
        "device.memory_used_gib",
        "float",
        "gib",
        "Most memory in use on a GPU, by all its processes",
        "nvml",
        decided_by="run the job on an NVIDIA GPU with NVML",
    ),
    Fact(
        "device.utilisation_frac",
        "float",
        "frac",
        "What nvidia-smi calls utilisation, mean",
        "nvml",
        decided_by="run the job on an NVIDIA GPU with NVML",
    ),
    Fact(
        "device.sm_clock_frac",
        "float",
        "frac",
        "SM clock over its maximum, median",
        "nvml",
        decided_by="run the job on an NVIDIA GPU with NVML",
    ),
    Fact(
        "device.foreign_processes",
        "int",
        "count",
        "Other processes on the job's GPUs",
        "nvml",
        decided_by="run the job on an NVIDIA GPU with NVML",
    ),
)
