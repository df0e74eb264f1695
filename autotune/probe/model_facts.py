"""Facts of the outermost model: sizes, configuration, dtypes, attention, dropout, kernels."""

from __future__ import annotations

from collections import Counter
from typing import Any

from . import graph_facts, hub_facts, kernel_facts, models, rewalked

_CONV_OR_STATE = ("hybrid_override_pattern", "layers_block_type", "layer_types", "block_types")


def collect(torch: Any, root: Any) -> dict[str, Any]:
    """Fields of ModelRecord."""
    model = models.unwrap(root)
    config = getattr(model, "config", None)
    text = _text_config(config)
    transformers = _is_transformers(model)
    modules = list(root.modules())
    facts: dict[str, Any] = {
        "class_name": models.class_of(model).__name__,
        "model_type": _get(config, "model_type"),
        "transformers": transformers,
        **_parameters(torch, root, modules),
        **_embedding(torch, model, modules),
        "layers": _number(text, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
        or _longest_list(torch, modules),
        "layer_types": _layer_types(text),
        "hidden_size": _number(text, "hidden_size", "n_embd", "d_model", "dim"),
        "attention_heads": _number(text, "num_attention_heads", "n_head", "n_heads"),
        "vocab_size": _number(text, "vocab_size"),
        "experts": _number(text, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
        "use_cache": _flag(text, "use_cache"),
        "output_attentions": _flag(text, "output_attentions", "_output_attentions"),
        "dropout_active": _dropout(torch, modules, text),
        "compiled": any(
            type(m).__name__ == "OptimizedModule" or m.__dict__.get("_compiled_call_impl") is not None
            for m in modules
        ),
        "lora": any("lora_" in name for name, _ in root.named_parameters()),
        "kernels": kernel_facts.collect(root),
        **hub_facts.collect(root),
        **graph_facts.collect(root),
        **rewalked.collect(),
    }
    head_dim = _number(text, "head_dim")
    if head_dim is None and facts["hidden_size"] and facts["attention_heads"]:
        head_dim = facts["hidden_size"] // facts["attention_heads"]
    facts["head_dim"] = head_dim
    if transformers:
        facts["attn_implementation"] = _attention(modules, text)
        facts["supports_sdpa"] = _flag(type(model), "_supports_sdpa")
    causal = [m.__dict__["is_causal"] for m in modules if isinstance(m.__dict__.get("is_causal"), bool)]
    facts["is_encoder"] = None if not causal else not any(causal)
    window = _number(text, "sliding_window")
    facts["sliding_window"] = window if _get(text, "use_sliding_window") is not False else None
    return facts


def _get(source: Any, *names: str) -> Any:
    for name in names:
        value = getattr(source, name, None)
        if value is not None:
            return value
    return None


def _number(source: Any, *names: str) -> int | None:
    value = _get(source, *names)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _flag(source: Any, *names: str) -> bool | None:
    value = _get(source, *names)
    return value if isinstance(value, bool) else None


def _text_config(config: Any) -> Any:
    getter = getattr(config, "get_text_config", None)
    if callable(getter):
        try:
            return getter()
        except Exception:
            return config
    return config


def _is_transformers(model: Any) -> bool:
    return any(kind.__module__ == "transformers.modeling_utils" for kind in type(model).__mro__)


def global_count(parameter: Any) -> int:
    """Elements of the whole parameter: DTensor and ZeRO know it, a local tensor is whole."""
    whole = getattr(parameter, "ds_numel", None)
    if isinstance(whole, int):
        return whole
    shapes = getattr(parameter, "_numels", None)  # FSDP1's flat parameter: sizes of what it holds
    if shapes is not None:
        try:
            return sum(int(n) for n in shapes)
        except TypeError:
            pass
    return int(parameter.numel())


def _local(parameter: Any) -> Any:
    return getattr(parameter, "_local_tensor", parameter)


def _parameters(torch: Any, root: Any, modules: list[Any]) -> dict[str, Any]:
    total = trainable = adapters = local_bytes = 0
    dtypes: Counter[str] = Counter()
    frozen: Counter[str] = Counter()
    for name_in_model, parameter in root.named_parameters():
        count = global_count(parameter)
        total += count
        trainable += count if parameter.requires_grad else 0
        adapters += count if parameter.requires_grad and "lora_" in name_in_model else 0
        name = str(parameter.dtype).removeprefix("torch.")
        dtypes[name] += count
        if not parameter.requires_grad:
            frozen[name] += count
        local = _local(parameter)
        local_bytes += local.numel() * local.element_size()
    return {
        "parameters": total,
        "trainable_parameters": trainable,
        "adapter_parameters": adapters,
        "parameter_dtypes": dict(dtypes),
        "frozen_dtypes": dict(frozen),
        "local_parameter_bytes": local_bytes,
    }


def _embedding(torch: Any, model: Any, modules: list[Any]) -> dict[str, Any]:
    """The input lookup table, and whether the output head shares it."""
    table = None
    getter = getattr(model, "get_input_embeddings", None)
    if callable(getter):
        try:
            table = getattr(getter(), "weight", None)
        except Exception:
            table = None
    if table is None:
        tables = [m.weight for m in modules if isinstance(m, torch.nn.Embedding)]
        table = max(tables, key=global_count, default=None)
    if table is None:
        return {"embedding_parameters": None, "embedding_tied": None}
    shared = any(isinstance(m, torch.nn.Linear) and m.weight is table for m in modules)
    return {"embedding_parameters": global_count(table), "embedding_tied": shared}


def _longest_list(torch: Any, modules: list[Any]) -> int | None:
    """Blocks of a hand-written model: the longest list of modules of one class."""
    longest = 0
    for module in modules:
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)) and len(module) > 1:
            kinds = Counter(type(child) for child in module)
            _, count = kinds.most_common(1)[0]
            if count == len(module) and any(True for _ in next(iter(module)).children()):
                longest = max(longest, count)
    return longest or None


def _layer_types(text: Any) -> dict[str, int]:
    value = _get(text, *_CONV_OR_STATE)
    if isinstance(value, (list, tuple)):
        return dict(Counter(str(item) for item in value))
    if isinstance(value, str):
        names = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
        return dict(Counter(names.get(letter, letter) for letter in value))
    return {}


def _attention(modules: list[Any], text: Any) -> str | None:
    """The implementation the attention layers will look up when they run."""
    used = Counter(
        str(implementation)
        for module in modules
        if type(module).__name__.endswith("Attention")
        and (implementation := _get(getattr(module, "config", None), "_attn_implementation")) is not None
    )
    if used:
        return used.most_common(1)[0][0]
    value = _get(text, "_attn_implementation")
    return str(value) if value is not None else None


def _dropout(torch: Any, modules: list[Any], text: Any) -> bool | None:
    base = torch.nn.modules.dropout._DropoutNd
    if any(isinstance(module, base) and module.p > 0 and module.training for module in modules):
        return True
    # functional dropout (attention, mostly) reads its rate from the configuration
    rates = [
        value
        for name, value in (vars(text).items() if text is not None and hasattr(text, "__dict__") else ())
        if ("dropout" in name or name.endswith("pdrop"))
        and isinstance(value, float)
        # rates of heads that other tasks use
        and not name.startswith(("summary_", "classifier_"))
    ]
    names = ("attention_dropout", "attn_dropout", "dropout", "attention_probs_dropout_prob")
    functional = [getattr(module, name, None) for module in modules for name in names]
    if any(isinstance(rate, float) and rate > 0 for rate in functional):
        return True
    return any(rate > 0 for rate in rates) if rates else False
