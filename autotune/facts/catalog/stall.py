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
    Fact("stall.log_frac", "float", "frac", "Share of the step spent in logging calls and prints", "probe"),
    Fact(
        "stall.beside_frac",
        "float",
        "frac",
        "Share of the step in the loop's own code beside training; clipping, saves, evaluation left out",
        "probe",
    ),
    Fact(
        "stall.values_read_per_step",
        "float",
        "count",
        "Tensor values that the loop's own code reads per step after the backward and the update",
        "probe",
    ),
    Fact("stall.evaluations_seen", "int", "count", "Evaluations between observed steps", "probe"),
    Fact("stall.saves_seen", "int", "count", "Checkpoints saved between observed steps", "probe"),
    Fact(
        "stall.gc_pauses_seen",
        "int",
        "count",
        "Garbage-collector pauses of 5 ms or more in the timed steps",
        "probe",
    ),
)
