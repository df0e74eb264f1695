"""torch.compile at work."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact("compile.recompiles", "int", "count", "Recompilations after the first step", "probe"),
    Fact("compile.graph_breaks", "int", "count", "Graph breaks", "probe"),
    Fact(
        "compile.recompile_reasons",
        "list",
        "",
        "Why functions were compiled again",
        "probe",
    ),
    Fact("compile.graph_break_reasons", "list", "", "Why graphs broke", "probe"),
    Fact(
        "compile.jit_steps_frac",
        "float",
        "frac",
        "Share of observed steps with kernel compilation in them",
        "probe",
    ),
    Fact("compile.mode", "str", "", "Mode given to torch.compile", "probe"),
    Fact(
        "compile.limit_hit",
        "bool",
        "",
        "A function was compiled too often and runs uncompiled since",
        "probe",
    ),
    Fact(
        "compile.limit_in_pieces",
        "bool",
        "",
        "What was compiled too often are pieces that graph breaks left of a larger function",
        "probe",
    ),
    Fact(
        "compile.compiled_regions",
        "int",
        "count",
        "Compiled regions in the trace",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
)
