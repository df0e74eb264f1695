"""What is reported besides the steps: at the first boundaries, at window changes, and at the end."""

from __future__ import annotations

import resource
import sys
from typing import Any

from .core import core

_MEMORY_EVERY = 16  # steps


def at_boundary(index: int, done: bool) -> None:
    if index == 1:
        from . import environment

        environment.report()
    if index in (1, 2) or done or index % _MEMORY_EVERY == 0:
        memory()


def at_end() -> None:
    memory()


def memory() -> None:
    torch: Any = sys.modules.get("torch")
    # Linux gives KiB, macOS bytes
    unit = 1 if sys.platform == "darwin" else 1024
    found: dict[str, Any] = {"host_peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    try:
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            stats = torch.cuda.memory_stats()
            found["device_bytes"] = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
            found["peak_allocated_bytes"] = stats.get("allocated_bytes.all.peak")
            found["peak_reserved_bytes"] = stats.get("reserved_bytes.all.peak")
            found["allocator_retries"] = stats.get("num_alloc_retries")
            found["out_of_memory"] = bool(stats.get("num_ooms", 0))
    except Exception:
        core.sink.fault("memory")
    core.emit("memory", found)
