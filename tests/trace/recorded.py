"""The recorded traces and their summaries, read once per test run."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from autotune.records.trace import RankTrace
from autotune.trace.summary import summarize

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "rules" / "_tables"
TRACES = ROOT / "tests" / "traces"

PADDED = "h200_qwen35_2b4_padded_fallback_1step"
PACKED = "h200_qwen35_2b4_packed_varlen_1step"
FSDP = "h200x2_qwen35_27b_packed_fsdp2_rank0_1step"
MI300X = "mi300x_8rank_resnet_actckpt_rank0"
A100 = "a100_2rank_ddp_nccl_args_rank0"
SAMPLED0 = "train_128rank_sampled_rank0"
SAMPLED1 = "train_128rank_sampled_rank1"
B200 = "b200_8rank_eager_rank0"
H100 = "h100_1gpu_qwen1.5-0.5b_infer_scrubbed"
ALL = (PADDED, PACKED, FSDP, MI300X, A100, SAMPLED0, SAMPLED1, B200, H100)


def path(name: str) -> Path:
    """The file of a recorded trace."""
    return TRACES / f"{name}.json.gz"


@cache
def rank(name: str) -> RankTrace:
    """What the engine says about it."""
    return summarize([path(name)], tables_dir=TABLES).ranks[0]
