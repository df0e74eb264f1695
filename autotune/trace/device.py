"""The accelerator a trace was recorded on, with its data-sheet peaks where the table knows it."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from autotune.records.trace import Device
from autotune.trace.classes import read_table
from autotune.trace.columns import Host
from autotune.trace.context import Context

_TABLE = "device_peaks.yaml"


@lru_cache(maxsize=4)
def _peaks(tables_dir: Path) -> list[dict[str, Any]]:
    return list(read_table(tables_dir / _TABLE)["devices"])


def peaks_of(name: str | None, tables_dir: Path) -> dict[str, Any]:
    """The row of the peak table for a device name; empty when unknown."""
    for row in _peaks(tables_dir) if name else ():
        if re.search(row["match"], name or "", re.IGNORECASE):
            return row
    return {}


def find_device(context: Context, tables_dir: Path) -> Device | None:
    """Device facts from the trace's metadata; None when there is no sign of a device."""
    gpu, metadata = context.trace.gpu, context.trace.metadata
    recorded = metadata.get("deviceProperties")
    listed = [item for item in recorded if isinstance(item, dict)] if isinstance(recorded, list) else []
    if not listed and not len(gpu):
        return None
    used = [int(device) for device in np.unique(gpu.device) if device >= 0]
    mine = next((item for item in listed if used and item.get("id") == used[0]), listed[0] if listed else {})
    name = mine.get("name") if isinstance(mine.get("name"), str) else None
    peaks = peaks_of(name, tables_dir)
    major, minor = mine.get("computeMajor"), mine.get("computeMinor")
    memory = mine.get("totalGlobalMem")
    return Device.model_validate(
        {
            "name": name,
            "vendor": _vendor(context, name),
            "visible_count": len(listed) or None,
            "used": used,
            "memory_gib": memory / float(1 << 30) if isinstance(memory, int | float) else None,
            "sm_count": mine.get("numSms") if isinstance(mine.get("numSms"), int) else None,
            "compute_capability": f"{major}.{minor}" if isinstance(major, int) else None,
            "bf16_peak_tflops": peaks.get("bf16_tflops"),
            "fp32_peak_tflops": peaks.get("fp32_tflops"),
            "tf32_peak_tflops": peaks.get("tf32_tflops"),
            "fp8_peak_tflops": peaks.get("fp8_tflops"),
            "memory_gb_s": peaks.get("memory_gb_s"),
            "peak_source": peaks.get("source"),
        }
    )


def dtype_peaks(device: Device | None) -> dict[str, float | None]:
    """Dense peak in TFLOP/s by data type. Half precisions share one rate on every listed device."""
    if device is None:
        return {}
    return {
        "bf16": device.bf16_peak_tflops,
        "fp16": device.bf16_peak_tflops,
        "tf32": device.tf32_peak_tflops,
        "fp32": device.fp32_peak_tflops,
        "fp8": device.fp8_peak_tflops,
    }


def _vendor(context: Context, name: str | None) -> str:
    text = (name or "").lower()
    keys = " ".join(context.trace.metadata)
    for vendor, words in (
        ("nvidia", ("nvidia", "tesla", "geforce", "quadro", "a100", "h100", "h200", "v100")),
        ("amd", ("amd", "instinct", "radeon", "gfx")),
        ("intel", ("intel", "xpu", "data center gpu max")),
    ):
        if any(word in text for word in words):
            return vendor
    if "roctracer" in keys or "hip_" in keys or _calls(context, "hip"):
        return "amd"
    if "cupti" in keys or "cuda_" in keys or _calls(context, "cuda"):
        return "nvidia"
    return "unknown"


def _calls(context: Context, prefix: str) -> bool:
    return bool(context.host_named(lambda text: text.startswith(prefix), Host.RUNTIME, Host.DRIVER).any())
