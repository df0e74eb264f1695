"""The small modules that fixes of rules bring: what they compute is what was computed before."""

from __future__ import annotations

import types
from typing import Any

import pytest
from jinja2 import Environment

from autotune.data import data_dir

torch = pytest.importorskip("torch")


def shim(name: str) -> Any:
    text = Environment(autoescape=False).from_string(
        (data_dir("templates") / "shims" / f"{name}.py.j2").read_text()
    )
    module = types.ModuleType(f"autotune_{name}")
    exec(compile(text.render(), module.__name__, "exec"), module.__dict__)
    return module


def test_only_masks_of_ones_are_left_out() -> None:
    ids = torch.tensor([[5, 6], [7, 0]])

    def collate(rows: list[Any]) -> dict[str, Any]:
        return {"input_ids": ids, "attention_mask": rows[0], "labels": ids}

    wrapped = shim("plain_masks").without_full_masks(collate)
    assert list(wrapped([torch.ones(2, 2)])) == ["input_ids", "labels"]
    assert list(wrapped([torch.tensor([[1, 1], [1, 0]])])) == ["input_ids", "attention_mask", "labels"]
    assert wrapped.__name__ == "collate"
    assert shim("plain_masks").without_full_masks(None)([torch.tensor([1]), torch.tensor([2])]).tolist() == [
        [1],
        [2],
    ]


def test_autocast_computes_in_bf16_and_keeps_fp32_parameters() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    rows = torch.randn(4, 8)
    plain = model(rows)
    changed = shim("bf16_compute").autocast(model)
    assert changed is model
    out = model(rows)
    assert out.dtype == torch.bfloat16
    assert torch.allclose(out.float(), plain, atol=0.05)
    assert not torch.equal(out.float(), plain)
    out.float().sum().backward()
    assert model.weight.dtype == model.weight.grad.dtype == torch.float32


class Slow:
    """A number that becomes known when `time` reaches its turn."""

    def __init__(self, module: Any, clock: dict[str, int], turn: int, value: float) -> None:
        def wait() -> None:
            clock["now"] = max(clock["now"], turn)
            clock["waits"] += 1

        self.number = module.Number(lambda: clock["now"] >= turn, wait, lambda: value)


def test_late_numbers_are_the_same_numbers_and_sums_do_not_wait() -> None:
    module = shim("late_reads")
    clock = {"now": 0, "waits": 0}
    values = [0.1, 0.2, 0.7, 1e16, -1e16, 3.3]
    total: Any = 0.0
    expected = 0.0
    for turn, value in enumerate(values, 1):
        total += Slow(module, clock, turn, value).number * 2
        expected += value * 2
    assert clock["waits"] == 0
    assert isinstance(total, module.Number)
    assert f"{total / 3:.17g}" == f"{expected / 3:.17g}"
    assert clock["waits"] == len(values)
    assert total == expected
    assert total > 0 - 1
    assert float(-total) == -expected
    clock["now"] = 99
    again = Slow(module, clock, 50, 2.5).number + 1
    assert (type(again), again) == (float, 3.5)  # known by then: no chain grows


def test_a_running_sum_over_many_steps_stays_short() -> None:
    module = shim("late_reads")
    clock = {"now": 0, "waits": 0}
    total: Any = 0.0
    for step in range(1, 20_001):
        total += Slow(module, clock, step, 0.25).number
        clock["now"] = step - 2  # the device is two steps behind
    assert float(total) == 5_000.0
    assert clock["waits"] <= 20_000 + 3


def test_late_reads_leave_host_tensors_alone() -> None:
    module = shim("late_reads")
    assert type(module.item(torch.tensor(2.5))) is float
    assert type(module.item(torch.tensor(2))) is int


def test_a_late_nan_is_noticed() -> None:
    import math

    module = shim("late_reads")
    number = Slow(module, {"now": 0, "waits": 0}, 1, float("nan")).number
    assert math.isnan(number)
    assert number != number
