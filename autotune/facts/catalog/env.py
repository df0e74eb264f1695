"""Software around the job."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact("env.python", "str", "", "Python version of the job", "probe"),
    Fact("env.torch", "str", "", "torch version", "probe"),
    Fact("env.transformers", "str", "", "transformers version", "probe"),
    Fact("env.triton", "str", "", "triton version", "probe"),
    Fact("env.cuda", "str", "", "CUDA version torch was built for", "probe"),
    Fact("env.flash_linear_attention", "str", "", "flash-linear-attention version", "probe"),
    Fact("env.causal_conv1d", "str", "", "causal-conv1d version", "probe"),
    Fact("env.flash_attention", "str", "", "flash-attn version", "probe"),
    Fact("env.cpu_threads_per_rank", "int", "count", "Threads torch uses per rank", "probe"),
    Fact(
        "env.cpu_threads_oversubscribed",
        "bool",
        "",
        "All ranks together use more threads than there are cores",
        "derived",
    ),
    Fact("env.tilelang", "str", "", "tilelang version", "probe"),
    Fact("env.liger_kernel", "str", "", "liger-kernel version", "probe"),
    Fact("env.mamba_ssm", "str", "", "mamba-ssm version", "probe"),
    Fact("env.cupti", "str", "", "CUPTI version: the GPU's side of torch's profiler", "probe"),
    Fact("env.hub_kernels", "str", "", "kernels version", "probe"),
    Fact(
        "env.version_conflicts", "list", "", "Pairs of installed packages known not to work together", "table"
    ),
    Fact("env.stale_packages", "list", "", "Packages too old for what rules recommend", "table"),
    Fact("env.gpu_unused", "bool", "", "A GPU is there and the job computes on the CPU", "probe"),
)
