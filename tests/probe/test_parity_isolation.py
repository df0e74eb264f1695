"""The isolation test on tiny models: right packings change nothing, each planted leak is seen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from probe_parts import part
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3NextConfig

LENGTHS = (7, 11, 6, 9)


def model(config: Any, attention: str = "sdpa") -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).train()


def llama(**more: Any) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, **more,
    )  # fmt: skip


def batch(lengths: tuple[int, ...] = LENGTHS, **more: Any) -> dict[str, Any]:
    ids = torch.randint(3, 50, (1, sum(lengths)), generator=torch.Generator().manual_seed(1))
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    return {"input_ids": ids, "labels": ids.clone(), "position_ids": positions, "use_cache": False, **more}


def run(module: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    layout = part("parity_examples").read(kwargs, [], torch)
    found = part("parity_isolation").Isolation(torch).consider(module, (), kwargs, layout)
    assert found is not None
    return dict(found)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_right_packing_is_isolated(attention: str) -> None:
    assert run(model(llama(), attention), batch()) == {
        "examples": 4, "before_change_frac": 0.0, "after_change_frac": 0.0, "repeat_change_frac": 0.0,
        "gradient_change_frac": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "more",
    [{"attention_mask": torch.ones(1, sum(LENGTHS), dtype=torch.long)}, {"use_cache": True}],
    ids=["all-ones mask", "use_cache"],
)
def test_a_leak_through_attention_is_seen(more: dict[str, Any]) -> None:
    found = run(model(llama()), batch(**more))
    assert found["after_change_frac"] > 1e-3
    assert found["before_change_frac"] == found["repeat_change_frac"] == 0.0


@pytest.mark.parametrize("leak", [False, True])
def test_rows_of_two_examples_are_enough_where_there_are_no_longer_ones(leak: bool) -> None:
    isolation, module = part("parity_isolation").Isolation(torch), model(llama())
    for lengths in ((9, 12), (14,), (12, 7)):
        kwargs = batch(lengths, use_cache=leak)
        layout = part("parity_examples").read(kwargs, [], torch)
        found = isolation.consider(module, (), kwargs, layout)
        assert (found is not None) == (lengths == (12, 7))
    assert found["examples"] == 2 and (found["after_change_frac"] > 1e-3) == leak


def test_a_leak_through_a_recurrent_state_is_seen() -> None:
    """The torch implementation of linear attention carries its state over every boundary."""
    config = Qwen3NextConfig(
        vocab_size=50, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, linear_num_value_heads=2, linear_num_key_heads=2,
        linear_key_head_dim=16, linear_value_head_dim=16, num_experts=2, num_experts_per_tok=1,
        moe_intermediate_size=16, shared_expert_intermediate_size=16,
        layer_types=["linear_attention", "full_attention"],
    )  # fmt: skip
    found = run(model(config), batch())
    assert found["after_change_frac"] > 1e-3


def test_a_model_without_causality_is_seen() -> None:
    class Backwards(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(50, 50)

        def forward(self, input_ids: Any, **_: Any) -> Any:
            return self.table(input_ids).flip(1).cumsum(1).flip(1)

    found = run(Backwards(), batch())
    assert found["before_change_frac"] > 0 and found["after_change_frac"] == 0


def test_random_numbers_and_buffers_are_put_back() -> None:
    class Noisy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(50, 50)
            self.norm = torch.nn.BatchNorm1d(50)

        def forward(self, input_ids: Any, **_: Any) -> Any:
            values = torch.nn.functional.dropout(self.table(input_ids), 0.5)
            self.norm(values[0].detach())
            return values

    module = Noisy()
    state, running = torch.get_rng_state(), module.norm.running_mean.clone()
    found = run(module, batch())
    assert found["repeat_change_frac"] == found["after_change_frac"] == 0.0  # every forward drops alike
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(module.norm.running_mean, running) and int(module.norm.num_batches_tracked) == 0


def test_a_fused_loss_without_logits_is_asked_without_labels() -> None:
    class Fused(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model(llama())

        def forward(self, labels: Any = None, **kwargs: Any) -> Any:
            logits = self.inner(**kwargs).logits
            return {"loss": logits.sum()} if labels is not None else {"logits": logits}

    assert run(Fused(), batch())["after_change_frac"] == 0.0


@pytest.mark.parametrize("leak", [False, True])
def test_a_loss_that_needs_labels_is_judged_by_hidden_states(leak: bool) -> None:
    class Chunked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model(llama()).model

        def forward(self, labels: Any, **kwargs: Any) -> Any:
            return {"loss": self.model(**kwargs).last_hidden_state.sum() + labels.sum()}

    found = run(Chunked(), batch(use_cache=leak))
    assert (found["after_change_frac"] > 1e-3) == leak and found["before_change_frac"] == 0


def test_padded_batches_are_left_alone() -> None:
    kwargs = {"input_ids": torch.randint(3, 50, (4, 8))}
    kwargs["labels"] = kwargs["input_ids"]
    layout = part("parity_examples").read(kwargs, [], torch)
    isolation = part("parity_isolation").Isolation(torch)
    assert isolation.consider(model(llama()), (), kwargs, layout) is None and not isolation.done
