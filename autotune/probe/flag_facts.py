"""Switches of torch, Python and the environment that change speed."""

from __future__ import annotations

import os
import sys
from typing import Any

_VERBOSE = {
    "TORCH_LOGS": (),
    "NCCL_DEBUG": ("INFO", "TRACE"),
    "TORCH_DISTRIBUTED_DEBUG": ("INFO", "DETAIL"),
    "TORCH_CPP_LOG_LEVEL": ("INFO",),
    "TORCHDYNAMO_VERBOSE": ("1",),
    "TORCH_SHOW_CPP_STACKTRACES": ("1",),
}


# Looks that saw a switch on; a with-block of the loop may be over when the job ends.
_in_backward = {"anomaly_detection": 0, "profiler_active": 0}
_looks = 0
_own = 0  # looks while our own profiler ran
_MOST_LOOKS = 20


def backward_begins(torch: Any, own_profiler: bool) -> None:
    """A switch that is on only around forward and backward is off again when the step has ended."""
    global _looks, _own
    if _looks >= _MOST_LOOKS:
        return
    _looks += 1
    _own += own_profiler
    _in_backward["anomaly_detection"] += torch.is_anomaly_enabled()
    _in_backward["profiler_active"] += not own_profiler and bool(torch.autograd._profiler_enabled())


def _traced() -> bool:
    """Python calls a debugger or a trace function. One that is only loaded (Jupyter) costs nothing."""
    monitoring = getattr(sys, "monitoring", None)  # Python 3.12
    return sys.gettrace() is not None or (
        monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None
    )


def collect(torch: Any, own_profiler: bool) -> dict[str, Any]:
    """Fields of FlagsRecord. `own_profiler`: ours runs, so an active profiler says nothing about the job."""
    found: dict[str, Any] = {
        "anomaly_detection": torch.is_anomaly_enabled() or _in_backward["anomaly_detection"] > 0,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "launch_blocking": os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"),
        "debugger": _traced(),
        # a profiler of the first few steps only is no profiler left on
        "profiler_active": _in_backward["profiler_active"] > max(0.5 * (_looks - _own), 3)
        or (not own_profiler and bool(torch.autograd._profiler_enabled())),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "verbose_logs": [
            name
            for name, loud in _VERBOSE.items()
            if (value := os.environ.get(name)) and (not loud or value.upper() in loud)
        ],
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
    }
    if torch.cuda.is_available():
        found["tf32_allowed"] = bool(torch.backends.cuda.matmul.allow_tf32)
    return found
