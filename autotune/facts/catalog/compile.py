"""torch.compile at work."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact("compile.recompiles", "int", "count", "Recompilations after the first step", "probe"),
    Fact("compile.graph_breaks", "int", "count", "Graph breaks", "probe"),
    Fact(
        "compile.jit_steps_frac",
        "float",
        "frac",
        "Share of observed steps with kernel compilation in them",
        "probe",
    ),
)
