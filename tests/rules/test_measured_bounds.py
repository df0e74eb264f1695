"""A bound is never below what mending the cause gave: jobs timed on an H200, with and without one fault.

The facts are those recorded of the sick job (`bench/faults --gpu`), as far as the bound needs them; the
ratio is that of its unprofiled steps to those of the healthy twin.
"""

from __future__ import annotations

import pytest
from rule_sheets import sheet_of

from autotune.facts.fact import Fact
from autotune.rules.load import RuleSet
from autotune.rules.match import match

# job: rule, measured ratio, recorded facts
TIMED = {
    "full-precision": (
        "precision/fp32-compute",
        7.17,
        {
            "run.has_gpu": True,
            "run.is_training": True,
            "precision.gemm_dtype": "fp32",
            "precision.bf16_supported": True,
            "precision.autocast_dtype": "none",
            "model.is_compiled": False,
            "kernels.gemm_frac": 0.8132,
            "kernels.elementwise_frac": 0.1715,
            "attention.backend": "math",
            "launch.gpu_busy_frac": 1.0,
        },
    ),
    "fp32-collectives": (
        "precision/fp32-compute",
        5.41,
        {
            "run.has_gpu": True,
            "run.is_training": True,
            "precision.gemm_dtype": "fp32",
            "precision.bf16_supported": True,
            "precision.autocast_dtype": "none",
            "model.is_compiled": False,
            "kernels.gemm_frac": 0.7953,
            "kernels.elementwise_frac": 0.0922,
            "attention.backend": "math",
            "launch.gpu_busy_frac": 1.0,
        },
    ),
    "offload-needless": (
        "memory/offload-unneeded",
        2.22,
        {
            "memory.parameters_offloaded": True,
            "memory.unsharded_static_frac": 0.0621,
            "memory.peak_frac": 0.1421,
            "run.world_size": 1,
            "run.out_of_memory": False,
            "optimizer.step_frac": 0.3482,
            "data.host_copies_frac": 0.5134,
            "launch.gpu_busy_frac": 0.6307,
            "kernels.gemm_frac": 0.239,
            "kernels.elementwise_frac": 0.2364,
            "attention.gpu_frac": 0.0645,
        },
    ),
    "mask-materialised": (
        "attention/materialised-mask",
        1.36,
        {
            "run.has_gpu": True,
            "run.is_training": True,
            "attention.mask_passed": True,
            "attention.gpu_frac": 0.3992,
            "attention.backend": "cudnn",
            "attention.sliding_window": False,
            "model.is_encoder": False,
            "data.max_length_seen": 4096,
            "packing.packed": False,
            "launch.gpu_busy_frac": 1.0,
        },
    ),
}


@pytest.mark.parametrize("job", TIMED)
def test_no_bound_is_below_what_was_measured(job: str, built_in: RuleSet, catalogue: dict[str, Fact]) -> None:
    rule, measured, facts = TIMED[job]
    found = match(built_in.rules, sheet_of(facts), catalogue=catalogue).findings
    bound = next(finding for finding in found if finding.rule == rule).gain.ratio_upper
    assert bound is not None and measured <= bound < 2 * measured


def test_one_micro_batch_keeps_its_own_idle_time(built_in: RuleSet, catalogue: dict[str, Fact]) -> None:
    """Two H200s, four micro-batches a step, 13 % busy: with one, a quarter of the idle time is left."""
    facts = {
        "run.has_gpu": True,
        "data.accumulation_steps": 4.0,
        "memory.peak_frac": 0.1401,
        "memory.allocator_retries": 0,
        "run.out_of_memory": False,
        "launch.gpu_busy_frac": 0.13,
        "launch.gpu_working_frac": 0.1276,
    }
    found = match(built_in.rules, sheet_of(facts), catalogue=catalogue).findings
    finding = next(finding for finding in found if finding.rule == "batching/accumulation-unneeded")
    assert finding.gain.ratio_upper == pytest.approx(1 / (1 - 0.75 * (1 - 0.1276)), abs=1e-3)
