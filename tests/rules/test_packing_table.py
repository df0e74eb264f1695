"""The packing table: measured verdicts, and unknown for everything else."""

from __future__ import annotations

import pytest

from autotune.facts.packing import Implementation, packing_verdict

ALL = ("position_ids", "seq_idx", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
POS = ("position_ids",)
CU = ("position_ids", "cu_seq_lens_q", "cu_seq_lens_k")
SEQ = ("position_ids", "seq_idx")


def verdict(
    family: str,
    implementation: Implementation,
    kwargs: tuple[str, ...],
    attention: str = "sdpa",
    batch: int = 1,
    mask: bool = False,
    use_cache: bool = False,
    version: str | None = "5.17.0",
) -> str:
    return packing_verdict(family, implementation, kwargs, attention, batch, mask, use_cache, version)


@pytest.mark.parametrize(
    ("family", "implementation", "kwargs", "expected"),
    [
        ("qwen3_5", "fast", ALL, "isolated"),
        ("qwen3_5", "fast", POS, "leaks"),
        ("qwen3_5", "fast", SEQ, "leaks"),
        ("qwen3_5", "fast", CU, "leaks"),
        ("qwen3_5", "fallback", ALL, "leaks"),
        ("bamba", "fast", SEQ, "isolated"),
        ("bamba", "fast", CU, "leaks"),
        ("kimi_linear", "fast", ALL, "leaks"),
        ("kimi_linear", "fast", (*ALL, "cu_seqlens"), "isolated"),
        ("glm5_next", "fast", (*ALL, "cu_seqlens"), "unknown"),
        ("mamba", "fast", ALL, "leaks"),
        ("deepseek_v4", "fast", ALL, "unknown"),
        ("llama", "dense", POS, "isolated"),
        ("llama", "dense", CU, "isolated"),
        ("llama", "dense", (), "leaks"),
        ("a_family_of_tomorrow", "dense", ALL, "unknown"),
        ("qwen3_5", "dense", ALL, "unknown"),  # no such column: not tested, not guessed
    ],
)
def test_families(
    family: str, implementation: Implementation, kwargs: tuple[str, ...], expected: str
) -> None:
    assert verdict(family, implementation, kwargs) == expected


def test_what_undoes_isolation() -> None:
    assert verdict("qwen3", "dense", POS, mask=True) == "leaks"
    assert verdict("qwen3", "dense", POS, attention="eager", use_cache=True) == "leaks"
    assert verdict("qwen3", "dense", POS, attention="flash_attention_2", batch=2) == "leaks"
    assert verdict("qwen3", "dense", CU, attention="flash_attention_2", batch=2) == "isolated"
    assert verdict("qwen3", "dense", POS, attention="varlen") == "unknown"
    assert verdict("qwen3", "dense", POS, batch=4) == "isolated"
    # a leak is never softened by an unknown, nor the other way round
    assert verdict("deepseek_v4", "fast", ALL, mask=True) == "leaks"
    assert verdict("granitemoehybrid", "fast", ALL, attention="flash_attention_2") == "unknown"
    assert verdict("granitemoehybrid", "fast", ALL) == "leaks"


def test_only_tested_versions_count() -> None:
    assert verdict("qwen3_5", "fast", ALL, version="5.17.3") == "isolated"
    assert verdict("qwen3_5", "fast", ALL, version="5.24.0") == "isolated"
    assert verdict("qwen3_5", "fast", ALL, version="5.20.1") == "isolated"
    assert verdict("qwen3_5", "fast", ALL, version="5.25.0") == "unknown"
    assert verdict("bamba", "fast", SEQ, version="5.24.0") == "isolated"
    assert verdict("moshi", "dense", POS, version="5.24.0") == "unknown"
    assert verdict("moshi", "dense", POS, version="5.20.0") == "unknown"
    assert verdict("qwen3_5", "fast", ALL, version="main") == "unknown"
    assert verdict("qwen3_5", "fast", ALL, version="4.56.3") == "unknown"
    assert verdict("qwen3_5", "fast", ALL, version=None) == "unknown"


def test_earlier_versions_have_verdicts_of_their_own() -> None:
    assert verdict("qwen3_5_text", "fast", ALL, version="5.16.1") == "isolated"
    assert verdict("qwen3_5_text", "fast", SEQ, version="5.16.1") == "leaks"
    assert verdict("qwen3_5_text", "fallback", ALL, version="5.16.1") == "leaks"
    assert verdict("qwen3", "dense", POS, version="5.16.1") == "isolated"
    assert verdict("qwen3", "dense", POS, version="5.16.1", mask=True) == "leaks"
    # between 5.10 and 5.14, which have the same verdicts; in 5.5 nothing reached the kernels
    assert verdict("qwen3_5", "fast", ALL, version="5.12.1") == "isolated"
    assert verdict("qwen3_5", "fast", ALL, version="5.8.0") == "unknown"
    assert verdict("qwen3_5", "fast", ALL, version="5.5.4") == "leaks"
    assert verdict("ctrl", "dense", POS, version="5.0.0") == "leaks"
    assert verdict("ctrl", "dense", POS, version="5.14.0") == "isolated"
    # seq_idx reaches its kernels from 5.17 on
    assert verdict("nemotron_h", "fast", ALL, version="5.16.1") == "leaks"
    assert verdict("nemotron_h", "fast", ALL) == "isolated"
    assert verdict("qwen4_exp", "fast", ALL, version="5.16.1") == "unknown"  # was not measured there
    assert verdict("a_family_of_tomorrow", "dense", ALL, version="5.16.1") == "unknown"
