"""Optimizer groups, schedules, adapters and loaded data sets, read from the real objects."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_parts import part

settings = part("recipe_settings")
core = part("core").core


def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))


def groups(parameters: list[torch.nn.Parameter], decay: float) -> list[dict[str, Any]]:
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def test_what_the_groups_say_wins_over_the_defaults() -> None:
    parameters = list(model().parameters())
    plain = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    found, odd = settings.optimizer_settings(plain)
    assert odd == [] and "decay_vectors" not in found
    assert found["class_name"] == "AdamW" and found["lr"] == 1e-3 and found["beta2"] == 0.95
    # torch's own default of 0.01 is in no group: Trainer makes such an optimizer without any decay
    found, odd = settings.optimizer_settings(torch.optim.AdamW(groups(parameters, 0.0), lr=1e-3))
    assert found["weight_decay"] == 0.0 and odd == []
    found, odd = settings.optimizer_settings(torch.optim.AdamW(groups(parameters, 0.1), lr=1e-3))
    assert found["weight_decay"] == 0.1 and found["decay_vectors"] is False and odd == []


def test_groups_that_one_setting_cannot_say_are_named() -> None:
    parameters = list(model().parameters())
    head = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 1e-2}]
    found, odd = settings.optimizer_settings(torch.optim.AdamW(head, lr=1e-3))
    assert found["lr"] == 1e-3 and odd == ["learning rates by group: 0.001, 0.01"]
    swapped = [{**group, "weight_decay": 0.1 - group["weight_decay"]} for group in groups(parameters, 0.1)]
    assert settings.optimizer_settings(torch.optim.AdamW(swapped))[1]


def test_the_first_rate_is_the_one_before_the_schedule() -> None:
    optimizer = torch.optim.SGD(model().parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    schedule.step()
    found, _ = settings.optimizer_settings(optimizer)
    assert found["lr"] == 0.5 and optimizer.param_groups[0]["lr"] < 0.5 and found["class_name"] == "SGD"


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The schedules' constructors as in a watched job; put back afterwards."""
    monkeypatch.setattr(core, "active", True)
    module = torch.optim.lr_scheduler
    for kind in (module.LRScheduler, module.SequentialLR, module.ChainedScheduler):
        monkeypatch.setattr(kind, "__init__", kind.__init__)
    settings.install(torch)
    return module


def test_schedules_are_noted_when_they_are_made(watched: Any) -> None:
    hf = pytest.importorskip("transformers")
    optimizer = torch.optim.AdamW(model().parameters())
    hf.get_cosine_schedule_with_warmup(optimizer, 10, 100)
    (found,) = settings.schedules_of(optimizer)
    assert found["function"] == "_get_cosine_schedule_with_warmup_lr_lambda"
    assert found["arguments"] == {"num_warmup_steps": 10, "num_training_steps": 100, "num_cycles": 0.5}
    other = torch.optim.AdamW(model().parameters())
    assert settings.schedules_of(other) == []
    parts = [watched.LinearLR(other, 0.1, total_iters=5), watched.CosineAnnealingLR(other, 50)]
    watched.SequentialLR(other, parts, [5])
    assert [s["class_name"] for s in settings.schedules_of(other)] == [
        "LinearLR",
        "CosineAnnealingLR",
        "SequentialLR",
    ]
    own = torch.optim.AdamW(model().parameters())
    watched.LambdaLR(own, lambda step: 1.0)
    assert settings.schedules_of(own)[0]["function"] == "<lambda>"


def test_a_noted_schedule_keeps_nothing_alive(watched: Any) -> None:
    optimizer = torch.optim.AdamW(model().parameters())
    alive = weakref.ref(watched.StepLR(optimizer, 3).optimizer)
    del optimizer
    gc.collect()
    assert alive() is None


def test_seed_of_the_job() -> None:
    state = torch.random.get_rng_state()
    try:
        torch.manual_seed(1234)
        assert settings.seed_of(torch, 42) == 1234 and settings.seed_of(torch, 1234) is None
        torch.manual_seed(67280421310721)  # what torch begins with
        assert settings.seed_of(torch, 42) is None
    finally:
        torch.random.set_rng_state(state)


def test_adapters_are_read_with_what_is_unusual() -> None:
    peft = pytest.importorskip("peft")
    hf = pytest.importorskip("transformers")
    config = hf.LlamaConfig(
        vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2
    )
    lora = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["v_proj", "q_proj"], lora_dropout=0.1)
    wrapped = peft.get_peft_model(hf.LlamaForCausalLM(config), lora)
    assert settings.adapter_of(wrapped) == {
        "rank": 4,
        "alpha": 8.0,
        "dropout": 0.1,
        "target_modules": ["q_proj", "v_proj"],
        "odd": [],
    }
    rslora = peft.LoraConfig(r=4, target_modules="all-linear", use_rslora=True)
    found = settings.adapter_of(peft.get_peft_model(hf.LlamaForCausalLM(config), rslora))
    assert found["odd"] == ["use_rslora"] and "down_proj" in found["target_modules"]
    assert settings.adapter_of(hf.LlamaForCausalLM(config)) is None
    saved = peft.LoraConfig(r=4, target_modules=["v_proj"], modules_to_save=["lm_head"])
    counts = part("model_facts")._parameters(
        torch, peft.get_peft_model(hf.LlamaForCausalLM(config), saved), []
    )
    assert counts["trainable_parameters"] - counts["adapter_parameters"] == 16 * 8  # the whole output layer


def test_calls_of_load_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    data = part("recipe_data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets, "load_dataset", datasets.load_dataset)
    monkeypatch.setattr(data, "_loaded", [])
    monkeypatch.setattr(core, "active", True)
    data._datasets(datasets)
    Path("rows.jsonl").write_text(json.dumps({"text": "a", "n": 1}) + "\n")
    options = {"cache_dir": str(tmp_path / "cache")}
    rows = datasets.load_dataset("json", data_files="rows.jsonl", split="train", **options)
    assert len(rows) == 1
    datasets.load_dataset("json", data_files={"train": ["rows.jsonl"]}, **options)
    datasets.load_dataset("json", data_files={"train": "rows.jsonl", "test": "rows.jsonl"}, **options)
    first, second = data.loaded()  # the same rows twice are said once
    assert first["files"] == [str(tmp_path / "rows.jsonl")] and first["split"] == "train"
    assert first["columns"] == {"text": "string", "n": "int64"}
    assert second["files"] == ["?"] and second["split"] == "train"
