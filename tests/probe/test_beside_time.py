"""Where the training thread is while nothing is trained: looks at real stacks, in a loop's own functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import pytest
from probe_parts import part

torch = pytest.importorskip("torch")


@pytest.fixture
def looks() -> Iterator[Any]:
    """The module with nothing seen yet, a model whose forward was seen, and one optimizer."""
    module, steps, growth, models = (part(name) for name in ("beside_time", "steps", "growth", "models"))
    counters = ("_whole", "_roots", "_looks", "_inner", "_depth", "_lines", "_hooks", "_updates")
    for name in counters:
        getattr(module, name).clear()
    before = steps.steps
    steps.steps = steps.Steps()
    growth._forwards, growth._forward_begun = 1, False
    optimizer = Careful(torch.nn.Linear(4, 4).parameters(), lr=0.1)
    models.remember_optimizer(optimizer)
    steps.steps._beside_from_ns = 1
    yield module
    steps.steps = before
    growth._forwards, growth._forward_begun = 0, False


class Careful(torch.optim.SGD):
    def perturb(self, look: Callable[[], None]) -> None:
        look()


def _look(module: Any, ends: dict[CodeType, int] | None = None) -> Callable[[], None]:
    """Looks at the stack of whoever calls it, as the thread beside the training thread does."""
    return lambda: module.look(sys._getframe(1), 1000, ends or {})


def _every_step(module: Any, count: int, does: Callable[[int], None]) -> dict[str, Any]:
    steps = part("steps").steps
    told: list[str] = []
    places = part("places")
    original, places.tell = places.tell, lambda kind, place, name, calls: told.append(f"{name} {place[1]}")
    try:
        for index in range(count):
            steps.index = index
            does(index)
            module._whole[index] += 4000
        return {**module.found(), "told": told}
    finally:
        places.tell = original


def average(look: Callable[[], None]) -> None:
    lerp(look)


def lerp(look: Callable[[], None]) -> None:
    look()


def test_a_function_between_the_update_and_the_next_batch(looks: Any) -> None:
    found = _every_step(looks, 8, lambda _: average(_look(looks)))
    assert found["beside_frac"] == pytest.approx(0.2)
    assert found["beside_function"].endswith("lerp") and found["beside_in_hook"] is False
    assert found["told"] == [f"lerp {lerp.__code__.co_firstlineno + 1}"]


def test_what_comes_once_in_a_while_is_not_told(looks: Any) -> None:
    look = _look(looks)

    def now_and_then(index: int) -> None:
        for _ in range(20 if index % 5 == 0 else 0):
            average(look)

    assert _every_step(looks, 12, now_and_then)["beside_frac"] == 0.0


def test_a_hook_on_gradients(looks: Any) -> None:
    look, steps = _look(looks), part("steps").steps
    weight = torch.ones(3, requires_grad=True)
    weight.register_hook(lambda gradient: average(look))

    def trains(_: int) -> None:
        steps._backward_depth = 1
        (weight * 2).sum().backward()
        steps._backward_depth = 0

    found = _every_step(looks, 8, trains)
    assert found["beside_frac"] == pytest.approx(0.2) and found["beside_in_hook"] is True


class Calls(torch.nn.Module):
    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self.look = look

    def forward(self) -> None:
        self.look()


def test_other_models_updates_and_gradients_are_no_work_beside_training(looks: Any) -> None:
    look, growth = _look(looks), part("growth")
    assert _every_step(looks, 8, lambda _: Calls(look)())["beside_frac"] == 0.0
    assert growth.forward_begun()  # of a second model that is trained: its loss follows
    growth.backward_ended()
    with torch.no_grad():  # a teacher on the next batch, in a job without a loader
        assert _every_step(looks, 8, lambda _: teaches(look))["beside_frac"] == 0.0
    growth.backward_ended()
    optimizer = part("models").optimizers()[-1]
    looks.start()
    assert _every_step(looks, 8, lambda _: optimizer.perturb(look))["beside_frac"] == 0.0
    weight = torch.ones(3, requires_grad=True)
    weight.register_hook(lambda gradient: look())
    inner = _every_step(looks, 8, lambda _: torch.autograd.grad((weight * 2).sum(), weight))
    assert inner["beside_frac"] == 0.0 and growth.forward_begun()


@torch.no_grad()
def teaches(look: Callable[[], None]) -> None:
    Calls(look)()


def test_a_loop_that_updates_its_weights_by_hand(looks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part("models"), "optimizers", list)
    assert _every_step(looks, 8, lambda _: average(_look(looks)))["beside_frac"] == 0.0


def test_rows_of_the_logits_without_a_gradient() -> None:
    idle = part("idle_outputs")
    logits = torch.randn(4, 32, 2048, requires_grad=True)
    torch.nn.functional.cross_entropy(logits[:, -1], torch.zeros(4, dtype=torch.long)).backward()
    idle.look(logits.grad)
    assert idle.found() == {"idle_rows_frac": pytest.approx(31 / 32, abs=1e-4), "idle_rows_classes": 2048}
    logits = torch.randn(4, 32, 2048, requires_grad=True)
    torch.nn.functional.cross_entropy(logits.transpose(1, 2), torch.zeros(4, 32, dtype=torch.long)).backward()
    idle.look(logits.grad)
    assert idle.found()["idle_rows_frac"] == 0.0
    idle.look(torch.zeros(4, 3, 8))  # no logits
    assert idle.found() == {}
