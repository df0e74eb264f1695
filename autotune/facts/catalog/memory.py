"""Device memory and activation checkpointing."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact("memory.device_gib", "float", "gib", "Memory of the device", "probe"),
    Fact("memory.peak_reserved_gib", "float", "gib", "Largest reserved memory over the ranks", "probe"),
    Fact("memory.peak_allocated_gib", "float", "gib", "Largest allocated memory over the ranks", "probe"),
    Fact("memory.peak_frac", "float", "frac", "Peak reserved over device memory, worst rank", "derived"),
    Fact(
        "memory.static_gib", "float", "gib", "Parameters, gradients and optimizer state per rank", "derived"
    ),
    Fact("memory.activation_gib", "float", "gib", "Peak allocated minus static memory", "derived"),
    Fact(
        "memory.allocator_retries",
        "int",
        "count",
        "Times the allocator flushed its cache to serve a request",
        "probe",
    ),
    Fact("memory.checkpointing", "bool", "", "Activation checkpointing is on", "probe"),
    Fact(
        "memory.checkpointing_kind",
        "str",
        "",
        "How it was switched on",
        "probe",
        choices=("transformers", "torch-wrapper", "torch-function", "deepspeed"),
    ),
    Fact("memory.checkpointing_reentrant", "bool", "", "The reentrant variant is used", "probe"),
    Fact(
        "memory.checkpointing_asked",
        "bool",
        "",
        "An option on the command line asks for activation checkpointing",
        "probe",
    ),
    Fact("memory.host_gib", "float", "gib", "Memory of the host that the job may use", "probe"),
    Fact(
        "memory.host_peak_frac",
        "float",
        "frac",
        "Largest resident memory of all ranks of a host together over the host's memory",
        "probe",
    ),
    Fact("memory.checkpointed_layers", "int", "count", "Layers that recompute their forward", "probe"),
    Fact(
        "memory.recompute_frac",
        "float",
        "frac",
        "Share of GPU busy time that recomputes forwards",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "memory.peak_without_checkpointing_frac",
        "float",
        "frac",
        "Predicted peak over device memory with checkpointing off, upper estimate",
        "derived",
    ),
    Fact("memory.empty_cache_per_step", "float", "count", "torch.cuda.empty_cache calls per step", "probe"),
    Fact("memory.optimizer_state_gib", "float", "gib", "Optimizer state of one rank", "probe"),
    Fact("memory.parameters_gib", "float", "gib", "All parameters of the model at two bytes each", "probe"),
    Fact(
        "memory.unsharded_static_frac",
        "float",
        "frac",
        "Parameters, gradients and Adam state of the whole model in fp32 over device memory",
        "derived",
    ),
    Fact(
        "memory.peak_every_second_layer_frac",
        "float",
        "frac",
        "Predicted peak over device memory with every second layer checkpointed",
        "derived",
    ),
    Fact("memory.expandable_segments", "bool", "", "The allocator may grow its segments", "probe"),
    Fact("memory.parameters_offloaded", "bool", "", "The sharding keeps parameters in host memory", "probe"),
)
