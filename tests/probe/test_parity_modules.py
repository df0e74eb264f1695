"""Single modules on captured inputs, in a tiny model: what is kept, what is compared, what is said."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_parts import part
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, LlamaConfig


@pytest.fixture(autouse=True)
def armed() -> Iterator[None]:
    core = part("core").core
    before, core.active = core.active, True
    yield
    core.active = before


def llama(attention: str = "eager") -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=32, num_hidden_layers=3, num_attention_heads=4,
        max_position_embeddings=64,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(
        config, attn_implementation=attention, dtype=torch.bfloat16
    ).train()


def ids() -> Any:
    return torch.randint(3, 50, (2, 12), generator=torch.Generator().manual_seed(1))


def run(model: Any, path: Path, *, keep: bool, **more: Any) -> dict[str, dict[str, Any]]:
    modules = part("parity_modules").Modules(torch, model, str(path), keep=keep, works=True)
    mask = torch.ones_like(ids())
    mask[1, 8:] = 0
    model(
        input_ids=ids(), attention_mask=mask, labels=ids().masked_fill(mask == 0, -100), **more
    ).loss.backward()
    before = {name: p.grad.clone() for name, p in model.named_parameters()}
    state = torch.get_rng_state()
    found = {record["name"]: record for record in modules.finish()}
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(p.grad, before[name]) for name, p in model.named_parameters())
    return found


@pytest.mark.parametrize("more", [{}, {"use_cache": True}], ids=["plain", "cache"])
def test_another_attention_is_as_near_to_float32(tmp_path: Path, more: dict[str, Any]) -> None:
    """A boolean mask stands where a floating one stood; a cache is filled by every call."""
    before = run(llama(), tmp_path / "kept.pt", keep=True, **more)
    after = run(llama("sdpa"), tmp_path / "kept.pt", keep=False, **more)
    assert set(before) == set(after) and "model.layers.0.self_attn" in before
    for name, record in before.items():
        assert "unknown" not in record, record
        other = after[name]
        assert "unknown" not in other, other
        for key in ("output_error_frac", "input_error_frac"):
            assert 0 < record[key] < 0.01 and other[key] < 1.5 * record[key] + 0.002, name
        assert record["parameter_error_frac"].keys() == other["parameter_error_frac"].keys()


def test_a_module_with_a_wrong_backward_is_named_and_no_other(tmp_path: Path) -> None:
    run(llama(), tmp_path / "kept.pt", keep=True)
    model = llama("sdpa")
    key = model.model.layers[0].self_attn.k_proj
    plain = key.forward
    key.forward = lambda hidden: plain(hidden) * 0.5 + plain(hidden).detach() * 0.5
    after = run(model, tmp_path / "kept.pt", keep=False)
    wrong = after["model.layers.0.self_attn"]
    assert wrong["parameter_error_frac"]["k_proj.weight"] == pytest.approx(0.5, abs=0.02)
    assert wrong["parameter_error_frac"]["v_proj.weight"] < 0.01
    assert max(after["model.layers.0.mlp"]["parameter_error_frac"].values()) < 0.01


def test_checkpointed_layers_are_seen_once(tmp_path: Path) -> None:
    model = llama()
    plain = {layer: layer.forward for layer in model.model.layers}
    for layer, forward in plain.items():
        layer.forward = lambda *a, _f=forward, **k: checkpoint(_f, *a, use_reentrant=False, **k)
    found = run(model, tmp_path / "kept.pt", keep=True, use_cache=False)
    assert "model.layers.0" in found and not any("unknown" in record for record in found.values())


class InPlace(torch.nn.Module):
    """Changes its input, and keeps a count in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, value: Any) -> Any:
        self.calls += 1
        value.mul_(2)
        return value * self.weight


class Net(torch.nn.Module):
    def __init__(self, rows: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rows = rows
        self.first, self.part = torch.nn.Linear(8, 64), InPlace()
        self.down, self.last = torch.nn.Linear(64, 8), torch.nn.Linear(8, 2)

    def forward(self) -> Any:
        return self.last(self.part(self.down(self.first(torch.ones(self.rows, 8)))))


def test_a_module_that_changes_its_input_and_its_buffers_is_left_as_it_was(tmp_path: Path) -> None:
    net = Net()
    modules = part("parity_modules").Modules(torch, net, str(tmp_path / "kept.pt"), keep=True, works=True)
    net().sum().backward()
    state = copy.deepcopy(net.state_dict())
    (record,) = modules.finish()
    assert record == {"name": "part", "kind": "InPlace", "output_error_frac": 0.0,
                      "input_error_frac": 0.0, "parameter_error_frac": {"weight": 0.0}}  # fmt: skip
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert float(net.part.calls) == 1


def test_why_a_module_was_not_checked_is_said(tmp_path: Path) -> None:
    def told(net: Any, keep: bool = False, path: str = "kept.pt") -> list[str]:
        modules = part("parity_modules").Modules(torch, net, str(tmp_path / path), keep=keep, works=True)
        net().sum().backward()
        return [record.get("unknown", "") for record in modules.finish()]

    assert told(Net(), keep=True) == [""]
    assert told(Net(rows=5)) == ["called with other shapes"]
    assert told(Net(), path="gone.pt") == ["the unchanged job kept no inputs of modules"]
    (tmp_path / "cut.pt").write_bytes((tmp_path / "kept.pt").read_bytes()[:300])
    assert "cannot be read" in told(Net(), path="cut.pt")[0]
    compiled = Net()
    compiled.part.compile(backend="eager")
    assert told(compiled) == ["the model is compiled"]
