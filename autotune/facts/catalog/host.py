"""Where the training thread spends its time outside tensor work, and forwards that serve nothing."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact("host.samples", "int", "count", "Looks at the training thread's stack in the timed steps", "probe"),
    Fact(
        "host.loop_frac",
        "float",
        "frac",
        "Share of the looks that found the thread in one Python loop of the job's own code",
        "probe",
    ),
    Fact("host.loop_function", "str", "", "Function with that loop", "probe"),
    Fact(
        "host.call_frac",
        "float",
        "frac",
        "Share of the looks inside one library function, of no training library, that the job's code calls",
        "probe",
    ),
    Fact("host.call_name", "str", "", "That library function", "probe"),
    Fact("host.loading_function", "str", "", "Own function that takes most of the loading", "probe"),
    Fact(
        "host.op_frac",
        "float",
        "frac",
        "Share of the profiled step that the training thread is inside tensor operations",
        "trace",
        decided_by="run the job under autotune analyze, which records a trace",
    ),
    Fact(
        "host.ops_per_ms",
        "float",
        "count",
        "CPU operator calls per millisecond of the unprofiled step",
        "derived",
        decided_by="run the job under autotune analyze, which records a trace",
    ),
    Fact(
        "host.unused_forward_frac",
        "float",
        "frac",
        "Share of the step in forwards of the model that record a graph and get no gradient",
        "probe",
    ),
    Fact("host.unused_forwards_per_step", "float", "count", "Such forwards per step", "probe"),
    Fact("host.unused_forward_repeats", "bool", "", "They repeat a forward that is trained on", "probe"),
    Fact(
        "host.uncached_frac",
        "float",
        "frac",
        "Share of the step in generating forwards that compute a known prefix again",
        "probe",
    ),
    Fact(
        "data.worker_starts_per_step",
        "float",
        "count",
        "Times per step that a DataLoader starts its worker processes; an epoch is one",
        "probe",
    ),
    Fact(
        "host.cached_forwards_per_step",
        "float",
        "count",
        "Forwards without gradients that are given a key/value cache, per step: the job generates",
        "probe",
    ),
    Fact("host.repeated_module", "str", "", "Module that a training step calls most often", "probe"),
    Fact("host.repeated_calls", "float", "count", "Its calls per backward; 0 below 16", "probe"),
    Fact("host.repeated_frac", "float", "frac", "Share of the step in its forwards", "probe"),
    Fact("host.repeated_call_us", "float", "us", "Time of one of its calls", "probe"),
    Fact("host.repeated_cell", "bool", "", "It is a recurrent cell of torch.nn", "probe"),
    Fact("host.uncached_forwards_per_step", "float", "count", "Such forwards per step", "probe"),
)
