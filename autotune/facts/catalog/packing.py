"""Several examples in one row, and whether they stay apart."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact(
        "packing.packed",
        "bool",
        "",
        "Rows hold several examples (position ids restart or boundaries are passed)",
        "probe",
    ),
    Fact("packing.boundary_arguments", "list", "", "Boundary arguments that reach the model", "probe"),
    Fact(
        "packing.verdict",
        "str",
        "",
        "Isolation of packed examples for this family, implementation, arguments and attention",
        "table",
        choices=("isolated", "leaks", "unknown"),
    ),
    Fact(
        "packing.verdict_with_fast_kernels",
        "str",
        "",
        "The same if the fused kernels ran and every boundary argument were passed",
        "table",
        choices=("isolated", "leaks", "unknown"),
    ),
    Fact(
        "packing.measured_leak_frac",
        "float",
        "frac",
        "Largest change of another example's logits when one example is replaced, over the largest logit",
        "probe",
        decided_by="run autotune verify (the isolation test runs there)",
    ),
)
