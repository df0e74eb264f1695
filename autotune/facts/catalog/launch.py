"""Whether the GPU waits for the CPU to launch work."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact(
        "launch.gpu_busy_frac",
        "float",
        "frac",
        "GPU busy time of a step over the unprofiled step time",
        "derived",
    ),
    Fact(
        "launch.gpu_working_frac",
        "float",
        "frac",
        "GPU busy time of a step, less what may be waiting for other ranks, over the unprofiled step time",
        "derived",
    ),
    Fact(
        "launch.kernels_per_step",
        "float",
        "count",
        "GPU kernels per step",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "launch.cpu_ops_per_step",
        "float",
        "count",
        "CPU operator calls per step",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "launch.median_kernel_us",
        "float",
        "us",
        "Median duration of a kernel",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "launch.starved_frac",
        "float",
        "frac",
        "Share of kernels that start right after their launch (the queue was empty)",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "launch.queue_full_ms",
        "float",
        "ms",
        "Time the launch queue was full per step (the CPU runs ahead)",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "launch.bound",
        "bool",
        "",
        "GPU idle for want of launched work, judged against the unprofiled step where there is one",
        "derived",
    ),
    Fact(
        "launch.idle_profiled_frac",
        "float",
        "frac",
        "Idle share of the profiled step; larger than the real one",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
)
