"""Places where the CPU waits for the GPU."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact(
        "sync.reads_per_step",
        "float",
        "count",
        "Device values read by user code, or by a Trainer that logs them, per step",
        "probe",
    ),
    Fact(
        "sync.trainer_log_reads_per_step",
        "float",
        "count",
        "Device values a transformers Trainer reads per step in order to log them",
        "probe",
    ),
    Fact(
        "sync.wait_frac",
        "float",
        "frac",
        "Share of the step the CPU blocks in those reads",
        "probe",
    ),
    Fact(
        "sync.device_copies_per_step",
        "float",
        "count",
        "Device-to-host copies per step",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "sync.blocking_ms",
        "float",
        "ms",
        "Time the CPU blocks in stream, event or device synchronisation per step",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "sync.nonzero_calls_per_step",
        "float",
        "count",
        "Operations per step whose result size depends on values (nonzero, masked_select, unique)",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "sync.device_syncs_per_step",
        "float",
        "count",
        "Whole-device synchronisations per step",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "sync.blocking_frac",
        "float",
        "frac",
        "Share of the profiled step the CPU blocks in synchronisation",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
)
