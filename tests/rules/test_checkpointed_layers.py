"""The module that checkpoints some layers: which ones, in each kind of checkpointing, equal gradients."""

from __future__ import annotations

import types
from typing import Any

import pytest

from autotune.apply.shims import render_shim

torch = pytest.importorskip("torch")


def shim(layers: int, checkpointed: int) -> Any:
    text = render_shim(
        "shims/checkpointed_layers.py.j2", {"layers": str(layers), "checkpointed": str(checkpointed)}
    )
    module = types.ModuleType("autotune_checkpointed_layers")
    exec(compile(text, module.__name__, "exec"), module.__dict__)
    return module


class Recomputed(torch.nn.Module):
    """A layer that counts its forwards."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.forwards = 0

    def forward(self, x: Any) -> Any:
        self.forwards += 1
        return torch.tanh(self.inner(x))


def train(layers: list[Any], call: Any) -> tuple[list[int], list[Any]]:
    x = torch.linspace(-1, 1, 8).reshape(2, 4).requires_grad_()
    for layer in layers:
        x = call(layer, x)
    x.sum().backward()
    inner = [getattr(layer, "_checkpoint_wrapped_module", layer) for layer in layers]
    return [part.forwards for part in inner], [part.inner.weight.grad for part in inner]


def made(count: int) -> list[Recomputed]:
    torch.manual_seed(0)
    return [Recomputed() for _ in range(count)]


@pytest.mark.parametrize(
    ("layers", "checkpointed", "twice"),
    [
        (6, 3, [1, 2, 1, 2, 1, 2]),
        (6, 0, [1] * 6),
        (6, 6, [2] * 6),
        (5, 2, [1, 1, 2, 1, 2]),
        (3, 1, [1, 1, 2]),
    ],
)
def test_calls_through_torch(layers: int, checkpointed: int, twice: list[int]) -> None:
    module = shim(layers, checkpointed)
    plain = train(made(layers), lambda layer, x: layer(x))
    for call in (
        lambda layer, x: module.checkpoint(layer, x, use_reentrant=False),
        lambda layer, x: module.checkpoint(
            lambda y: layer(y), x, use_reentrant=False, preserve_rng_state=True
        ),
    ):
        ran, gradients = train(made(layers), call)
        assert ran == twice
        assert all(torch.equal(one, other) for one, other in zip(gradients, plain[1], strict=True))


def test_a_second_forward_checkpoints_the_same_layers() -> None:
    module, layers = shim(4, 2), made(4)
    for _ in range(3):
        train(layers, lambda layer, x: module.checkpoint(layer, x, use_reentrant=False))
    assert [layer.forwards for layer in layers] == [3, 6, 3, 6]


def test_wrapped_layers() -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        apply_activation_checkpointing,
        checkpoint_wrapper,
    )

    plain = train(made(4), lambda layer, x: layer(x))
    model = torch.nn.Sequential(*made(4))
    apply_activation_checkpointing(model, check_fn=lambda part: isinstance(part, Recomputed))
    assert shim(4, 1).checkpoint_some(model) is model
    ran, gradients = train(list(model), lambda layer, x: layer(x))
    assert ran == [1, 1, 1, 2]
    assert all(torch.equal(one, other) for one, other in zip(gradients, plain[1], strict=True))
    module = shim(4, 2)
    one_by_one = [module.some_of(checkpoint_wrapper(layer)) for layer in made(4)]
    assert train(one_by_one, lambda layer, x: layer(x))[0] == [1, 2, 1, 2]


def test_a_model_without_checkpointing_is_refused() -> None:
    with pytest.raises(ValueError, match="no checkpointed layer"):
        shim(4, 2).checkpoint_some(torch.nn.Sequential(*made(2)))


def test_a_transformers_model_and_its_trainer() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=8, intermediate_size=16, num_hidden_layers=4, num_attention_heads=2
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.gradient_checkpointing_enable()
    shim(4, 2).checkpoint_some(model)
    assert [layer.gradient_checkpointing for layer in model.model.layers] == [False, True, False, True]
    trained = transformers.AutoModelForCausalLM.from_config(config)
    trainer = types.SimpleNamespace(model=trained)
    assert shim(4, 1).for_trainer(trainer) is trainer
    assert not trained.is_gradient_checkpointing
    trained.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    assert [layer.gradient_checkpointing for layer in trained.model.layers] == [False, False, False, True]
