"""What is trained."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact("model.class_name", "str", "", "Class of the outermost model", "probe"),
    Fact("model.type", "str", "", "Family (transformers model_type)", "probe"),
    Fact("model.is_transformers", "bool", "", "The model is a transformers model", "probe"),
    Fact("model.is_encoder", "bool", "", "Bidirectional model (no causal mask)", "probe"),
    Fact("model.parameters", "int", "count", "Parameters", "probe"),
    Fact("model.trainable_parameters", "int", "count", "Parameters that get a gradient", "probe"),
    Fact("model.embedding_parameters", "int", "count", "Parameters of the input embedding lookup", "probe"),
    Fact("model.layers", "int", "count", "Decoder layers", "probe"),
    Fact("model.hidden_size", "int", "count", "Hidden size", "probe"),
    Fact("model.head_dim", "int", "count", "Size of an attention head", "probe"),
    Fact("model.vocab_size", "int", "count", "Vocabulary", "probe"),
    Fact("model.attention_layers", "int", "count", "Layers with softmax attention", "probe"),
    Fact(
        "model.linear_attention_layers",
        "int",
        "count",
        "Layers with linear attention or a state-space recurrence",
        "probe",
    ),
    Fact("model.conv_layers", "int", "count", "Layers with a short causal convolution", "probe"),
    Fact("model.moe_experts", "int", "count", "Experts per mixture layer; 0 when there is none", "probe"),
    Fact("model.dropout_active", "bool", "", "Some dropout with p > 0 runs in training", "probe"),
    Fact("model.is_compiled", "bool", "", "torch.compile wraps the model or its blocks", "probe"),
    Fact("model.lora", "bool", "", "Trained through low-rank adapters", "probe"),
    Fact("model.use_cache", "bool", "", "The key/value cache is built during training", "probe"),
    Fact("model.frozen_frac", "float", "frac", "Share of parameters that are frozen", "derived"),
    Fact(
        "model.unused_gradient_frac",
        "float",
        "frac",
        "Share of the parameters with a gradient that no optimizer updates",
        "probe",
    ),
    Fact(
        "model.needless_backward_frac",
        "float",
        "frac",
        "Share of the operations of the backward that lead only to parameters no optimizer updates",
        "probe",
    ),
    Fact(
        "model.unused_gradient_modules",
        "list",
        "",
        "Parts of the model whose gradients no optimizer uses",
        "probe",
    ),
    Fact(
        "model.rewalked_backward_frac",
        "float",
        "frac",
        "Share of the operations of a step's backwards that an earlier one of the step did already",
        "probe",
    ),
    Fact("model.backwards_per_graph", "float", "count", "Backwards of a step through one forward", "probe"),
    Fact(
        "model.penalised_frac",
        "float",
        "frac",
        "Share of the trained values that go into the loss by themselves (norm, power, sum) beside the model",
        "probe",
    ),
    Fact(
        "model.unused_gradients_beside",
        "bool",
        "",
        "The gradients no optimizer uses all belong to modules beside the trained model",
        "probe",
    ),
    Fact("model.vocab_misaligned", "bool", "", "The vocabulary is no multiple of 8", "probe"),
)
