"""Measure whether packed examples stay apart, for tiny random models of the installed transformers.

    python bench/packing_isolation.py [FAMILY ...]        without names: all causal language models

Two examples of 37 and 29 tokens are put into one row; one is replaced by other tokens; the largest change of
the other's logits over the largest logit is its leak. 0 is bitwise isolated; products over another number
of tokens per expert may round differently, about 1e-7. Training mode, fp32, no dropout, no cache.
The results are the rows of rules/_tables/packing_isolation.yaml for models with softmax attention only;
layers with a recurrence run their PyTorch code here, which says nothing about fused kernels: those are stood
in for in bench/kernel_versions.py.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from typing import Any

import torch

FIRST, SECOND = 37, 29
_SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"), 48),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), 4),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 256),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "moe_intermediate_size", "sliding_window"), 16),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "head_dim"), 8),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace", "bos_token_id"), 1),
    **dict.fromkeys(
        ("num_key_value_heads", "num_experts_per_tok", "num_attention_groups", "eos_token_id"), 2
    ),
    **dict.fromkeys(("attn_dropout", "attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    **dict.fromkeys(("hidden_dropout", "dropout", "activation_dropout", "residual_dropout"), 0.0),
    "vocab_size": 128,
    "pad_token_id": 0,
}


@dataclass(frozen=True)
class Leaks:
    """Leaks of one family; None where the model did not run."""

    position_ids: float | None
    everything: float | None
    two_rows: float | None
    with_mask: float | None
    with_cache: float | None


def small_model(family: str, attention: str, **own: Any) -> Any:
    """A tiny random model of a family, with each of its kinds of layers. Raises what transformers raises.

    `own` are values of its configuration in the place of the general ones; None leaves the family's default.
    """
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[family]
    usual = kind()
    sizes = {name: value for name, value in _SMALL.items() if getattr(usual, name, None) is not None}
    if hasattr(usual, "qk_rope_head_dim"):
        sizes.pop("head_dim", None)
        sizes["num_key_value_heads"] = 4
    layers = None if "layer_types" in own else getattr(usual, "layer_types", None)
    if layers:
        kinds = list(dict.fromkeys(layers))
        count = max(2, len(kinds))
        sizes["layer_types"] = [kinds[i % len(kinds)] for i in range(count)]
        sizes.update({name: count for name in ("num_hidden_layers", "n_layer") if name in sizes})
    sizes = {name: value for name, value in {**sizes, **own}.items() if value is not None}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(kind(**sizes), attn_implementation=attention)
    if sum(p.numel() for p in model.parameters()) > 40_000_000:
        raise ValueError("the model stays too large")
    return model.train()


# columns of the table -> what is passed beside restarting position_ids
LEVELS: dict[str, tuple[str, ...]] = {
    "pos": (),
    "seq_idx": ("seq_idx",),
    "cu": ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"),
    "all": ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"),
    "all_plus_cu_seqlens": (
        "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx", "cu_seqlens",
    ),
}  # fmt: skip


def leak(model: Any, *, level: str = "pos", rows: int = 1, mask: bool = False, cache: bool = False) -> float:
    """Largest change of the second example's logits when the first is replaced, over the largest logit."""
    torch.manual_seed(1)
    ids = torch.randint(3, 120, (rows, FIRST + SECOND))
    other = ids.clone()
    other[:, :FIRST] = torch.randint(3, 120, (rows, FIRST))
    positions = torch.cat([torch.arange(FIRST), torch.arange(SECOND)])[None].expand(rows, -1)
    arguments: dict[str, Any] = {"position_ids": positions, "use_cache": cache}
    if mask:
        arguments["attention_mask"] = torch.ones_like(ids)
    starts = torch.tensor([0, FIRST, FIRST + SECOND], dtype=torch.int32)
    every: dict[str, Any] = dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k", "cu_seqlens"), starts)
    every |= dict.fromkeys(("max_length_q", "max_length_k"), FIRST)
    every["seq_idx"] = (torch.arange(FIRST + SECOND) >= FIRST)[None].to(torch.int32)
    arguments.update({name: every[name] for name in LEVELS[level]})
    with torch.no_grad():
        torch.manual_seed(5)
        before = model(input_ids=ids, **arguments).logits
        torch.manual_seed(5)
        after = model(input_ids=other, **arguments).logits
    return float((before - after)[:, FIRST:].abs().max() / before.abs().max())


def measure(family: str, attention: str = "sdpa") -> Leaks:
    """All leaks of a family."""
    model = small_model(family, attention)

    def one(**options: Any) -> float | None:
        try:
            return leak(model, **options)
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError, KeyError):
            return None

    return Leaks(one(), one(level="all"), one(rows=2), one(mask=True), one(cache=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*")
    parser.add_argument("--attention", default="sdpa")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    print("family: position_ids, everything, two rows, with mask, with cache")
    for family in options.families or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        try:
            print(f"{family}: {', '.join(str(v) for v in vars(measure(family, options.attention)).values())}")
        except Exception as fault:  # whatever a foreign model raises is its result
            print(f"{family}: {type(fault).__name__}: {str(fault)[:90]}")


if __name__ == "__main__":
    main()
