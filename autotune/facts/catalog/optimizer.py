"""The optimizer step."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact("optimizer.class_name", "str", "", "Class of the optimizer", "probe"),
    Fact(
        "optimizer.implementation",
        "str",
        "",
        "How its update runs",
        "probe",
        choices=("fused", "foreach", "for-loop", "custom"),
    ),
    Fact(
        "optimizer.fused_available",
        "bool",
        "",
        "This torch has a fused variant for this class, device and dtypes",
        "probe",
    ),
    Fact("optimizer.step_frac", "float", "frac", "Share of the step inside optimizer.step", "probe"),
    Fact("optimizer.step_ms", "float", "ms", "Time inside optimizer.step per step (host side)", "probe"),
    Fact(
        "optimizer.gpu_frac",
        "float",
        "frac",
        "Share of GPU busy time in optimizer kernels",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "optimizer.launches_per_step",
        "float",
        "count",
        "Kernels the optimizer launches per step",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact("optimizer.count", "int", "count", "Optimizers in the job", "probe"),
    Fact("optimizer.zero_grad_to_zeros", "bool", "", "Gradients are set to zeros and not to None", "probe"),
    Fact("optimizer.parameters", "int", "count", "Parameters the optimizers were given", "probe"),
    Fact(
        "optimizer.norm_calls_per_step",
        "float",
        "count",
        "Vector norms per step (gradient clipping)",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "optimizer.clip_checks_finite",
        "bool",
        "",
        "Gradient clipping reads the norm to test for NaN",
        "probe",
    ),
    Fact(
        "optimizer.idle_values_frac",
        "float",
        "frac",
        "Share of the updated values in rows of large tables that got no gradient in the step",
        "probe",
    ),
    Fact(
        "optimizer.made_per_step",
        "float",
        "count",
        "Optimizers per step that replace a dead one of the same parameters",
        "probe",
    ),
    Fact(
        "optimizer.graph_of_gradients_per_step",
        "float",
        "count",
        "Backwards per step that record a graph of the gradients (create_graph)",
        "probe",
    ),
    Fact(
        "optimizer.gradient_calls_per_step",
        "float",
        "count",
        "Calls of torch.autograd.grad per step",
        "probe",
    ),
    Fact("optimizer.clip_foreach", "bool", "", "Gradient clipping works on all tensors at once", "probe"),
)
