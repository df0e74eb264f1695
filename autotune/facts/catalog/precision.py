"""Number formats where they matter: in the matrix products."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact(
        "precision.gemm_dtype",
        "str",
        "",
        "Format most matrix-product time runs in",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
        choices=("fp32", "tf32", "bf16", "fp16", "fp8"),
    ),
    Fact(
        "precision.fp32_gemm_frac",
        "float",
        "frac",
        "Share of matrix-product time in fp32 without tensor cores",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "precision.autocast_dtype",
        "str",
        "",
        "Format of torch.autocast, none when off",
        "probe",
        choices=("none", "bf16", "fp16"),
    ),
    Fact(
        "precision.parameter_dtype",
        "str",
        "",
        "Format of most parameters",
        "probe",
        choices=("fp64", "fp32", "bf16", "fp16", "fp8"),
    ),
    Fact(
        "precision.frozen_dtype",
        "str",
        "",
        "Format of most frozen parameters",
        "probe",
        choices=("fp64", "fp32", "bf16", "fp16", "fp8"),
    ),
    Fact(
        "precision.gradient_dtype",
        "str",
        "",
        "Format of most gradients as they reach the optimizer",
        "probe",
        choices=("fp64", "fp32", "bf16", "fp16", "fp8"),
    ),
    Fact("precision.optimizer_state_dtype", "str", "", "Format of most of the optimizer state", "probe"),
    Fact(
        "precision.policy_dtype",
        "str",
        "",
        "Compute format of the sharding's mixed-precision policy",
        "probe",
        choices=("none", "fp64", "fp32", "bf16", "fp16"),
    ),
    Fact("precision.tf32_allowed", "bool", "", "fp32 matrix products may use TF32", "probe"),
    Fact("precision.bf16_supported", "bool", "", "The device computes bf16 on its matrix units", "probe"),
    Fact(
        "precision.cast_gpu_frac",
        "float",
        "frac",
        "Share of GPU busy time in copies that change format or layout",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "precision.fp64_gemm_frac",
        "float",
        "frac",
        "Share of matrix-product time in fp64; on a CPU convolutions and attention included",
        "trace",
        decided_by="record a trace with record_shapes, as analyze does",
    ),
    Fact(
        "precision.fp64_step_frac",
        "float",
        "frac",
        "Share of the profiled step in products of fp64 on the CPU",
        "trace",
        decided_by="run the job on a CPU under autotune analyze, which records a trace",
    ),
    Fact(
        "precision.fp64_inputs",
        "list",
        "",
        "Arguments of the model that arrive in fp64",
        "probe",
    ),
)
