"""Facts about the model: family, attention, kernels, packing, number formats."""

from __future__ import annotations

from collections import Counter

from autotune.facts.packing import Implementation, packing_verdict
from autotune.facts.sheet import SheetBuilder
from autotune.records.observation import ForwardRecord, ModelRecord, Observation, RankObservation

_DTYPE_SHORT = {
    "float64": "fp64",
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
}
_LINEAR_LAYER_WORDS = ("linear", "mamba", "recurrent", "delta", "ssm", "rwkv", "retention")
_CONV_LAYER_WORDS = ("conv",)
_ALL_BOUNDARIES = (
    "position_ids",
    "seq_idx",
    "cu_seq_lens_q",
    "cu_seq_lens_k",
    "max_length_q",
    "max_length_k",
)


def model_facts(sheet: SheetBuilder, lead: RankObservation, basis: str) -> None:
    model = lead.model
    source = "probe, outermost model"
    if model is None:
        return
    sheet.put("model.class_name", model.class_name, source)
    sheet.put("model.type", model.model_type, source)
    sheet.put("model.is_transformers", model.transformers, source)
    sheet.put("model.is_encoder", model.is_encoder, source)
    sheet.put("model.parameters", model.parameters, source, basis)
    sheet.put("model.trainable_parameters", model.trainable_parameters, source, basis)
    sheet.put("model.embedding_parameters", model.embedding_parameters, source, basis)
    sheet.put("model.layers", model.layers, source)
    sheet.put("model.hidden_size", model.hidden_size, source)
    sheet.put("model.head_dim", model.head_dim, source)
    sheet.put("model.vocab_size", model.vocab_size, source)
    sheet.put("model.moe_experts", model.experts or 0, source)
    sheet.put("model.dropout_active", model.dropout_active, source)
    sheet.put("model.is_compiled", model.compiled, source)
    sheet.put("model.lora", model.lora, source)
    if model.adapter_parameters and model.trainable_parameters:
        whole = 1.0 - model.adapter_parameters / model.trainable_parameters
        sheet.put("model.beside_adapters_frac", max(0.0, whole), source, basis)
    else:
        sheet.not_applicable("model.beside_adapters_frac", "no low-rank adapters are trained")
    forward = lead.forward
    sheet.put("model.use_cache", _cache_built(model, forward), source)
    if model.parameters:
        frozen = 1.0 - model.trainable_parameters / model.parameters
        sheet.put("model.frozen_frac", max(0.0, frozen), source, basis)
    _unused_gradients(sheet, model)
    linear, conv, attention = _layer_counts(model)
    sheet.put("model.linear_attention_layers", linear, source)
    sheet.put("model.conv_layers", conv, source)
    sheet.put("model.attention_layers", attention, source)


def _unused_gradients(sheet: SheetBuilder, model: ModelRecord) -> None:
    _rewalked(sheet, model)
    if not model.gradient_parameters or model.unused_gradient_parameters is None:
        return
    source, basis = "probe, autograd graph", "one backward of rank 0"
    unused = model.unused_gradient_parameters / model.gradient_parameters
    sheet.put("model.unused_gradient_frac", unused, source, basis)
    sheet.put("model.needless_backward_frac", model.needless_backward_frac, source, basis)
    sheet.put("model.unused_gradient_modules", list(model.unused_gradient_modules), source, basis)
    sheet.put("model.unused_gradients_beside", model.unused_gradients_beside, source, basis)
    sheet.put("model.penalised_frac", model.penalised_frac, source, basis)


def _cache_built(model: ModelRecord, forward: ForwardRecord | None) -> bool | None:
    """Encoders build none, whatever their configuration and the call say."""
    if model.is_encoder:
        return False
    passed = None if forward is None else forward.use_cache_argument
    return model.use_cache if passed is None else passed


def _rewalked(sheet: SheetBuilder, model: ModelRecord) -> None:
    """A job whose backwards keep no graph goes through each once."""
    source, basis = "probe, autograd graph", "one step of rank 0"
    sheet.put("model.rewalked_backward_frac", model.rewalked_backward_frac or 0.0, source, basis)
    sheet.put("model.backwards_per_graph", model.backwards_per_graph or 1.0, source, basis)


def _layer_counts(model: ModelRecord) -> tuple[int | None, int | None, int | None]:
    """Layers with a linear recurrence, with a short convolution, with softmax attention."""
    if model.layer_types:
        linear = sum(n for t, n in model.layer_types.items() if any(w in t for w in _LINEAR_LAYER_WORDS))
        conv = sum(n for t, n in model.layer_types.items() if any(w in t for w in _CONV_LAYER_WORDS))
        rest = sum(model.layer_types.values()) - linear - conv
        if any(kernel.role == "causal_conv" for kernel in model.kernels):
            conv = max(conv, linear)
        return linear, conv, rest
    roles = {kernel.role for kernel in model.kernels}
    if model.layers is None or not model.transformers:
        return None, None, None
    if "linear_attention" in roles:
        return model.layers, model.layers if "causal_conv" in roles else 0, 0
    return 0, 0, model.layers


def attention_facts(sheet: SheetBuilder, lead: RankObservation, observation: Observation) -> None:
    model, forward = lead.model, lead.forward
    source = "probe, model configuration in effect"
    if model is not None:
        sheet.put("attention.implementation", model.attn_implementation, source)
        sheet.put("attention.supports_sdpa", model.supports_sdpa, source)
        sheet.put("attention.output_attentions", model.output_attentions, source)
        if model.transformers:
            sheet.put("attention.sliding_window", bool(model.sliding_window), source)
        origin = _attention_origin(observation, model)
        sheet.put("attention.origin", origin, "probe, constructor calls")
        if model.transformers:
            # CPU: causal sdpa per segment. GPU: torch's own variable-length kernel, head size 256 at most.
            small = model.head_dim is None or model.head_dim <= 256
            sheet.put("attention.varlen_available", small, "derived from head size and device")
    if forward is not None:
        sheet.put("attention.mask_all_ones", forward.attention_mask_all_ones, "probe, arguments of forward")


def _attention_origin(observation: Observation, model: ModelRecord) -> str | None:
    for site in observation.sites:
        if site.kind in ("model_create", "config_create") and "attn_implementation" in site.arguments:
            return {"cli": "flag", "config": "config"}.get(
                site.arguments["attn_implementation"].origin, "call-site"
            )
    if model.attn_implementation == "eager" and model.supports_sdpa is False:
        return "unsupported"
    return "default" if model.attn_implementation else None


def kernel_facts(sheet: SheetBuilder, lead: RankObservation) -> None:
    model = lead.model
    if model is None:
        return
    for role, prefix in (
        ("linear_attention", "kernels.linear_attention"),
        ("causal_conv", "kernels.causal_conv"),
    ):
        kernels = [k for k in model.kernels if k.role == role]
        if not kernels:
            if role == "linear_attention" and _layer_counts(model)[0]:
                why = "the model has such layers, and how they are computed was not recognised"
                sheet.absent(prefix, why)
            elif model.transformers:
                sheet.not_applicable(prefix, "the model has no such layer")
                sheet.not_applicable(f"{prefix}_reason", "the model has no such layer")
            continue
        slow = [k for k in kernels if not k.fast]
        names = ", ".join(k.name for k in kernels)
        sheet.put(prefix, "fallback" if slow else "fast", "probe, resolved kernel functions", names)
        if slow:
            reason = next((k.reason for k in slow if k.reason), None)
            sheet.put(f"{prefix}_reason", reason, "probe, import of the kernel package")
            error = next((k.error for k in slow if k.error), None)
            sheet.put(f"{prefix}_error", error, "probe, import of the kernel package", why="no import error")
        else:
            sheet.not_applicable(f"{prefix}_reason", "the fused kernel runs")


def packing_facts(sheet: SheetBuilder, lead: RankObservation) -> None:
    forward, model = lead.forward, lead.model
    if forward is None or model is None:
        return
    source = "probe, arguments of forward"
    boundaries = forward.boundary_arguments
    if forward.position_ids_restart is not None or boundaries:
        sheet.put("packing.packed", bool(forward.position_ids_restart or boundaries), source)
    elif "position_ids" not in forward.keys:
        starts = _starts_in_labels(sheet, lead)
        if starts:
            basis = "no position ids, no mask and no boundaries are passed"
            sheet.put(
                "packing.packed", True, f"probe, labels: {starts:.1f} documents begin inside a row", basis
            )
        else:
            sheet.put("packing.packed", False, source)
    sheet.put("packing.boundary_arguments", list(boundaries), source)
    if not (model.transformers and model.model_type):
        return
    kernels = [k for k in model.kernels if k.role in ("linear_attention", "causal_conv")]
    linear, _, _ = _layer_counts(model)
    special = bool(kernels) or bool(linear)
    implementation: Implementation = "dense"
    if special:
        implementation = "fast" if kernels and all(k.fast for k in kernels) else "fallback"
    attention = model.attn_implementation or "sdpa"
    version = lead.environment.packages.get("transformers")
    family = model.model_type
    best = packing_verdict(
        family, "fast" if special else "dense", _ALL_BOUNDARIES, attention, 1, False, False, version
    )
    sheet.put("packing.verdict_with_fast_kernels", best, "packing isolation table", family)
    how = f"{family}, {implementation}"
    if sheet.value("packing.packed") is True:
        cached = _cache_built(model, forward)
        given = (*boundaries, *(["position_ids"] if forward.position_ids_restart else []))
        now = packing_verdict(
            family,
            implementation,
            given,
            attention,
            max(1, round(sheet.number("data.batch_size") or 1)),
            forward.attention_mask,
            bool(cached),
            version,
        )
        how += ", arguments as the job passes them"
    else:
        now = packing_verdict(family, implementation, _ALL_BOUNDARIES, attention, 1, False, False, version)
        how += ", if it were packed with every boundary argument"
    sheet.put("packing.verdict", now, "packing isolation table", how)


_PACKED_ROWS_FRAC = 0.8  # of rows in which documents begin, for a data set to count as packed


def _starts_in_labels(sheet: SheetBuilder, lead: RankObservation) -> float:
    """Documents that begin inside a row, by the labels alone; 0 when the labels do not say so.

    The first token of a packed document has no label: there is nothing to predict it from. A mask of the
    job's own may keep documents apart, and padded rows are no packed rows, so neither counts.
    """
    rows = lead.counters.get("labelled_rows", 0.0)
    padding = sheet.number("data.padding_frac")
    if not rows or lead.forward is None or "attention_mask" in lead.forward.keys:
        return 0.0
    if padding is not None and padding > 0.05:
        return 0.0
    if lead.counters.get("rows_with_label_gaps", 0.0) < _PACKED_ROWS_FRAC * rows:
        return 0.0
    return lead.counters.get("label_gaps", 0.0) / rows


def precision_facts(sheet: SheetBuilder, lead: RankObservation) -> None:
    if lead.model is not None and lead.model.parameter_dtypes:
        main = max(lead.model.parameter_dtypes.items(), key=lambda item: item[1])[0].removeprefix("torch.")
        sheet.put(
            "precision.parameter_dtype", _DTYPE_SHORT.get(main), "probe, parameters", why=f"dtype {main}"
        )
    if lead.model is not None and lead.model.frozen_dtypes:
        main = max(lead.model.frozen_dtypes.items(), key=lambda item: item[1])[0]
        sheet.put("precision.frozen_dtype", _DTYPE_SHORT.get(main), "probe, parameters", why=f"dtype {main}")
    elif lead.model is not None:
        sheet.not_applicable("precision.frozen_dtype", "no parameter is frozen")
    _update_formats(sheet, lead)
    if lead.forward is not None:
        sheet.put("precision.fp64_inputs", list(lead.forward.double_inputs), "probe, arguments of forward")
        auto = lead.forward.autocast_dtype.removeprefix("torch.")
        sheet.put("precision.autocast_dtype", _DTYPE_SHORT.get(auto, auto), "probe, forward")
    policy = lead.sharding.param_dtype if lead.sharding else None
    short = _DTYPE_SHORT.get((policy or "none").removeprefix("torch."), "none")
    sheet.put("precision.policy_dtype", short, "probe, mixed-precision policy")
    if lead.environment.device_type == "cpu":
        sheet.not_applicable("precision.tf32_allowed", "the job runs on the CPU")
    elif lead.flags is not None:
        sheet.put("precision.tf32_allowed", lead.flags.tf32_allowed, "probe, torch backends")
    sheet.put("precision.bf16_supported", lead.environment.bf16_supported, "probe, device")


def _update_formats(sheet: SheetBuilder, lead: RankObservation) -> None:
    """Formats of the gradients and of the optimizer state, by elements over all optimizers."""
    source, basis = "probe, optimizer", f"rank {lead.rank}"
    gradients: Counter[str] = Counter()
    state: Counter[str] = Counter()
    for optimizer in lead.optimizers:
        gradients.update(optimizer.gradient_dtypes)
        state.update(optimizer.state_dtypes)
    if gradients:
        main = gradients.most_common(1)[0][0]
        sheet.put("precision.gradient_dtype", _DTYPE_SHORT.get(main), source, basis, why=f"dtype {main}")
    if state:
        main = state.most_common(1)[0][0]
        sheet.put("precision.optimizer_state_dtype", _DTYPE_SHORT.get(main, main), source, basis)
    elif lead.optimizers and all(o.state_bytes is None for o in lead.optimizers) and lead.steps:
        sheet.not_applicable("precision.optimizer_state_dtype", "the optimizer keeps no state")
    sizes = [o.gradient_bytes for o in lead.optimizers if o.gradient_bytes is not None]
    if sizes:
        sheet.put("memory.gradients_gib", sum(sizes) / 2**30, source, basis)
