"""How softmax attention is computed."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact(
        "attention.implementation",
        "str",
        "",
        "Implementation the model really calls (eager, sdpa, flash_attention_2, ...)",
        "probe",
    ),
    Fact(
        "attention.origin",
        "str",
        "",
        "Where the implementation was chosen",
        "probe",
        choices=("default", "call-site", "config", "flag", "unsupported"),
    ),
    Fact("attention.supports_sdpa", "bool", "", "The model class has an sdpa implementation", "probe"),
    Fact("attention.output_attentions", "bool", "", "The job asks for attention weights", "probe"),
    Fact(
        "attention.mask_passed",
        "bool",
        "",
        "A mask tensor reaches the attention operator",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact("attention.mask_all_ones", "bool", "", "The 2-D mask given to the model masks nothing", "probe"),
    Fact(
        "attention.backend",
        "str",
        "",
        "Kernel family that ran",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
        choices=(
            *("flash", "cudnn", "efficient", "math", "eager"),
            *("varlen", "flash_package", "flex", "other"),
        ),
    ),
    Fact(
        "attention.gpu_frac",
        "float",
        "frac",
        "Share of GPU busy time in attention",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "attention.planning_ms",
        "float",
        "ms",
        "CPU time of a profiled step in which cuDNN's attention plans for shapes it has not seen",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "attention.score_bytes_gib",
        "float",
        "gib",
        "Bytes of one layer's attention scores or mask at the largest batch seen",
        "derived",
    ),
    Fact(
        "attention.cpu_frac",
        "float",
        "frac",
        "Share of CPU operator time in attention operators (CPU jobs); for eager attention an upper estimate",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "attention.varlen_available",
        "bool",
        "",
        "A variable-length attention can run here (flash-attn, torch varlen, or per-segment sdpa)",
        "derived",
    ),
    Fact("attention.sliding_window", "bool", "", "Some layers use a sliding window", "probe"),
    Fact(
        "attention.kernel_family",
        "str",
        "",
        "Implementation the attention kernels belong to",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
        choices=(
            *("flash2", "flash3", "flash4", "cudnn", "efficient"),
            *("trtllm", "flashinfer", "ck", "flex", "triton"),
        ),
    ),
    Fact("attention.window_tokens", "int", "tokens", "Width of the sliding window", "probe"),
)
