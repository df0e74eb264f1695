"""What interrupts steps."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact("stall.checkpoint_frac", "float", "frac", "Share of the run spent saving checkpoints", "probe"),
    Fact("stall.evaluation_frac", "float", "frac", "Share of the run spent evaluating", "probe"),
    Fact("stall.gc_ms_per_step", "float", "ms", "Garbage-collector pauses per step", "probe"),
    Fact(
        "stall.gc_collects_per_step", "float", "count", "gc.collect calls made by the job per step", "probe"
    ),
    Fact("stall.log_frac", "float", "frac", "Share of the step spent in logging calls", "probe"),
    Fact(
        "stall.gc_pauses_seen",
        "int",
        "count",
        "Garbage-collector pauses of 5 ms or more in the timed steps",
        "probe",
    ),
)
