"""What counts as a backward that goes through a graph again, on real graphs of torch."""

from __future__ import annotations

import importlib
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from probe_parts import part

_TRUNK, _HEADS = torch.nn.Linear(8, 8), [torch.nn.Linear(8, 2) for _ in range(3)]


@pytest.fixture
def rewalked(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.reload(part("rewalked"))
    monkeypatch.setattr(module, "core", SimpleNamespace(settings=SimpleNamespace(full=True)))
    return module


def _steps(index: int = 1) -> Any:
    return SimpleNamespace(index=index, optimizer_calls=0, backwards=0)


def _backward(module: ModuleType, steps: Any, loss: torch.Tensor, **given: Any) -> None:
    module.backward_begins((loss,), (), given, steps)
    loss.backward(**given)
    steps.backwards += 1


def _losses() -> list[torch.Tensor]:
    hidden = _TRUNK(torch.ones(4, 8)).tanh().sin().cos().exp()
    return [head(hidden).sum() for head in _HEADS]


def test_three_losses_of_one_forward(rewalked: ModuleType) -> None:
    steps = _steps()
    for loss in _losses():
        _backward(rewalked, steps, loss, retain_graph=True)
    found = rewalked.collect()
    assert found["backwards_per_graph"] == 3.0 and 0.3 < found["rewalked_backward_frac"] < 0.67
    rewalked.update_begins()
    assert not rewalked._kept  # the graphs are let go


def test_micro_batches_share_nothing_though_they_keep_their_graphs(rewalked: ModuleType) -> None:
    steps = _steps()
    for _ in range(3):
        _backward(rewalked, steps, _losses()[0], retain_graph=True)
    assert rewalked.collect() == {"rewalked_backward_frac": 0.0, "backwards_per_graph": 1.0}


def test_gradients_wanted_apart_and_graphs_not_kept_say_nothing(rewalked: ModuleType) -> None:
    steps = _steps()
    for loss in _losses():
        _backward(rewalked, steps, loss, retain_graph=True)
        rewalked.gradients_reset(steps)
    assert rewalked.collect() == {}


def test_a_plain_step_is_not_walked(rewalked: ModuleType) -> None:
    _backward(rewalked, _steps(), sum(_losses()))
    assert rewalked.collect() == {} and not rewalked._kept
