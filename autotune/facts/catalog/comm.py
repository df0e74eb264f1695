"""Communication between ranks."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact(
        "comm.kind",
        "str",
        "",
        "How the job is spread",
        "probe",
        choices=("none", "ddp", "fsdp1", "fsdp2", "deepspeed"),
    ),
    Fact(
        "comm.total_ms",
        "float",
        "ms",
        "Time of communication kernels per step",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "comm.exposed_ms",
        "float",
        "ms",
        "Communication per step with no other GPU work beside it",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "comm.exposed_frac",
        "float",
        "frac",
        "Exposed communication over the step's GPU span",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "comm.overlap_frac",
        "float",
        "frac",
        "Share of communication hidden behind compute",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "comm.main_collective",
        "str",
        "",
        "Collective with the most exposed time",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "comm.wait_known",
        "bool",
        "",
        "Waiting and transfer can be told apart (traces of all ranks)",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "comm.collectives_per_step",
        "float",
        "count",
        "Collectives per optimizer step",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact("comm.fsdp_units", "int", "count", "Sharded units", "probe"),
    Fact("comm.reshard_after_forward", "bool", "", "Parameters are freed after the forward", "probe"),
    Fact(
        "comm.reduce_dtype",
        "str",
        "",
        "Format of gradient reduction",
        "probe",
        choices=("fp32", "bf16", "fp16"),
    ),
    Fact(
        "comm.syncs_per_optimizer_step",
        "float",
        "count",
        "Gradient reductions per unit and optimizer step",
        "derived",
    ),
    Fact("comm.slowest_rank", "int", "count", "Rank that is last most often", "derived"),
    Fact(
        "comm.rank_skew_frac",
        "float",
        "frac",
        "How much longer the slowest rank computes than the median rank",
        "derived",
    ),
)
