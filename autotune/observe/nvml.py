"""Samples the GPUs ten times a second while a job runs: clocks, power, throttling, memory, other processes.

Runs in our own process, so it costs the job nothing. Without an NVIDIA driver there are no samples.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from autotune.records.observation import DeviceSample

_PERIOD_S = 0.1
_PROCESS_EVERY = 10  # listing processes is slow: once a second
_MAX_SAMPLES = 36_000  # then every second sample is dropped and the period doubles

_THROTTLE_BITS = {
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}


class DeviceSampler:
    """A thread that samples the GPUs the job may use."""

    def __init__(self, env: Mapping[str, str], job_pids: Callable[[], set[int]]) -> None:
        self._env = env
        self._job_pids = job_pids
        self._samples: list[DeviceSample] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._nvml: Any = None
        self._handles: list[tuple[int, Any]] = []
        self._foreign: dict[int, int | None] = {}
        self._period_s = _PERIOD_S

    def start(self) -> None:
        """Start sampling if there is a GPU."""
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:  # no package, no driver, no permission: the same as no GPU
            return
        self._nvml = pynvml
        count = pynvml.nvmlDeviceGetCount()
        for index in visible_devices(self._env, count, self._uuids(count)):
            self._handles.append((index, pynvml.nvmlDeviceGetHandleByIndex(index)))
        if self._handles:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def stop(self) -> list[DeviceSample]:
        """End sampling and return what was seen."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)
        if self._nvml is not None:
            try:
                self._nvml.nvmlShutdown()
            except Exception:
                pass
        return self._samples

    def _uuids(self, count: int) -> list[str]:
        found = []
        for index in range(count):
            value = self._nvml.nvmlDeviceGetUUID(self._nvml.nvmlDeviceGetHandleByIndex(index))
            found.append(value.decode() if isinstance(value, bytes) else str(value))
        return found

    def _run(self) -> None:
        tick = 0
        while not self._stop.wait(self._period_s):
            own = self._job_pids() if tick % _PROCESS_EVERY == 0 else None
            for index, handle in self._handles:
                if own is not None:
                    self._foreign[index] = self._foreign_processes(handle, own)
                self._samples.append(self._sample(index, handle))
            tick += 1
            if len(self._samples) >= _MAX_SAMPLES * len(self._handles):
                width = len(self._handles)
                kept = [s for n, s in enumerate(self._samples) if (n // width) % 2 == 0]
                self._samples = kept
                self._period_s *= 2

    def _ask(self, name: str, *arguments: Any) -> Any:
        """One NVML call; None where this GPU or driver does not answer it."""
        try:
            return getattr(self._nvml, name)(*arguments)
        except Exception:
            return None

    def _sample(self, index: int, handle: Any) -> DeviceSample:
        use = self._ask("nvmlDeviceGetUtilizationRates", handle)
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        power = self._ask("nvmlDeviceGetPowerUsage", handle)
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return DeviceSample(
            at_s=time.monotonic(),
            gpu=index,
            utilisation_frac=None if use is None else use.gpu / 100,
            memory_used_gib=None if memory is None else memory.used / 2**30,
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", handle, 1),
            sm_clock_max_mhz=self._ask("nvmlDeviceGetMaxClockInfo", handle, 1),
            power_w=None if power is None else power / 1000,
            temperature_c=self._ask("nvmlDeviceGetTemperature", handle, 0),
            throttle_reasons=None if reasons is None else throttle_names(reasons),
            foreign_processes=self._foreign.get(index),
        )

    def _foreign_processes(self, handle: Any, own: set[int]) -> int | None:
        """Processes on the GPU that are not the job's; None when NVML's ids are not ours (containers)."""
        listed = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        if listed is None:
            return None
        pids = {int(p.pid) for p in listed}
        if not pids:
            return 0
        if own and not pids & own:
            return None
        return len(pids - own)


def throttle_names(bits: int) -> list[str]:
    """Names of the clock-event reasons that slow a GPU down; idle is not one."""
    return [name for bit, name in _THROTTLE_BITS.items() if bits & bit]


def visible_devices(env: Mapping[str, str], count: int, uuids: list[str]) -> list[int]:
    """Physical indexes of the GPUs the job may use, from CUDA_VISIBLE_DEVICES (indexes or UUIDs)."""
    text = env.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(range(count))
    found: list[int] = []
    for part in (p.strip() for p in text.split(",")):
        if part.isdigit() and int(part) < count:
            found.append(int(part))
            continue
        hits = [n for n, uuid in enumerate(uuids) if part and uuid.startswith(part)]
        if len(hits) != 1:
            break  # CUDA itself ignores everything behind an invalid entry
        found.append(hits[0])
    return found
