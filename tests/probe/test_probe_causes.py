"""Causes that are named: recompilation, graph breaks, hub kernels, loading, how the model is called."""

from __future__ import annotations

import sys
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
from jobs import SCRIPTS, faults, run
from probe_parts import part

from autotune.facts.everything import derive_facts


@pytest.mark.job
def test_why_it_compiled_again_and_where_loading_went(tmp_path: Path) -> None:
    job = run(tmp_path, "recompiles_loop.py", mode="profile", stop="never")
    assert job.exit_code == 0 and faults(job) == [], job.errors[-2000:]
    reasons = {r.kind: r for r in job.rank.compile_reasons if r.function == "loss_of"}
    assert "size mismatch at index 1" in reasons["recompile"].reason
    assert reasons["recompile"].file == str(SCRIPTS / "recompiles_loop.py")
    recompiled = [r for r in job.rank.compile_reasons if r.kind == "recompile" and "ids" in r.reason]
    assert (
        sum(r.count for r in recompiled) == 6
    )  # three new lengths, for the function and what follows its break
    broken = reasons["graph-break"]
    assert broken.reason == "Data-dependent branching" and broken.function == "loss_of"
    assert broken.line == 1 + (SCRIPTS / "recompiles_loop.py").read_text().split("\n").index(
        "    if ids.sum() < 0:"
    )
    log = job.observation.model_copy(update={"log_tail": job.errors.splitlines()})
    facts = derive_facts(log, None).facts
    assert "size mismatch" in str(facts["compile.recompile_reasons"].value)
    assert not any("_autotune_probe" in reason.file for reason in job.rank.compile_reasons)
    # `note` breaks the graph of the function that calls it, and is compiled by itself until the limit
    read = next(r for r in job.rank.compile_reasons if r.kind == "graph-break" and r.function == "note")
    assert read.pieces == [f"{SCRIPTS / 'recompiles_loop.py'}:note"] and read.count >= 8
    assert facts["compile.limit_hit"].value is True
    assert facts["compile.limit_in_pieces"].value is True
    assert [site.line for site in job.observation.sites if site.kind == "graph_break"][-1] == read.line
    assert int(str(facts["compile.graph_breaks"].value)) >= 8
    # two examples of 4 ms and one collate of 4 ms for each of the steps
    assert 7.5 < float(str(facts["data.loader_read_ms"].value)) < 30
    assert 3.8 < float(str(facts["data.loader_collate_ms"].value)) < 15
    assert facts["data.loader_tokenise_ms"].value == 0.0
    assert facts["data.to_device_ms"].state == "not-applicable"
    assert 0.0 <= float(str(facts["stall.log_frac"].value)) < 0.02  # the job prints its losses


@pytest.mark.job
@pytest.mark.parametrize(
    ("form", "whole"),
    [
        ("dict", True),
        pytest.param("tuple", False, marks=pytest.mark.full),
        pytest.param("tensor", True, marks=pytest.mark.full),
    ],
)
def test_whether_the_batch_reaches_the_model_as_it_is(tmp_path: Path, form: str, whole: bool) -> None:
    job = run(tmp_path, "plain_loop.py", "--form", form, mode="profile", steps=3, warmup_steps=3)
    assert faults(job) == []
    call = job.site("model_call")
    assert call.detail["whole"] is whole
    if form == "dict":
        assert {argument.origin for argument in call.arguments.values()} == {"star-kwargs"}
    facts = derive_facts(job.observation, None).facts
    assert facts["data.batch_passed_whole"].value is whole


def _layer(name: str | None, torch: Any) -> Any:
    class Layer(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    if name is not None:
        Layer.kernel_layer_name = name  # type: ignore[attr-defined]
    return Layer()


@pytest.mark.parametrize(
    ("asked", "layers", "replaced", "package", "reason"),
    [
        (True, 2, 1, True, None),
        (True, 2, 0, True, "no-kernel"),
        (True, 0, 0, True, "no-layer"),
        (True, 2, 0, False, "absent"),
        (False, 2, 0, True, None),
    ],
)
def test_hub_kernels_that_run_and_do_not(
    monkeypatch: pytest.MonkeyPatch,
    asked: bool,
    layers: int,
    replaced: int,
    package: bool,
    reason: str | None,
) -> None:
    """The marks are those the kernels package and transformers leave on layers and on the model."""
    import torch

    model = torch.nn.Sequential(_layer(None, torch), *(_layer("RMSNorm", torch) for _ in range(layers)))
    model._use_kernels = asked
    own = [module for module in model if hasattr(type(module), "kernel_layer_name")]
    for number, module in enumerate(own):
        if number < replaced:
            module.forward = MethodType(lambda self, x: x + 0, module)
        else:  # the package puts a layer's own forward back like this
            module.forward = MethodType(type(module).forward, module)
    monkeypatch.delitem(sys.modules, "kernels", raising=False)
    if package:
        monkeypatch.setitem(sys.modules, "kernels", SimpleNamespace())
    monkeypatch.delenv("USE_HUB_KERNELS", raising=False)
    found = part("hub_facts").collect(model)
    assert found["hub_kernels_asked"] is asked and found.get("hub_kernels_reason") == reason
    assert (found["hub_kernel_layers"], found["hub_kernels_replaced"]) == (layers, replaced)
    monkeypatch.setenv("USE_HUB_KERNELS", "OFF")
    if asked and not replaced:
        assert part("hub_facts").collect(model)["hub_kernels_reason"] == "switched-off"
    assert part("hub_facts").collect(torch.nn.Linear(1, 1)) == {}


@pytest.mark.job
def test_what_a_trainer_reads_in_order_to_log_is_counted(tmp_path: Path) -> None:
    job = run(tmp_path, "trainer_loop.py", "--output_dir", "out", mode="profile", stop="never")
    assert job.exit_code == 0 and faults(job) == [], job.errors[-2000:]
    assert len(job.rank.steps) == 12
    assert job.rank.counters["trainer_log_reads"] == 24  # the loss and the norm, with logging_steps=1
    assert 0.0 < job.rank.counters["trainer_log_wait_ms"] < 12_000
    assert not any(site.kind == "device_read" and "Trainer" in site.callee for site in job.observation.sites)
    on_cpu = derive_facts(job.observation, None).facts
    assert on_cpu["sync.trainer_log_reads_per_step"].state == "not-applicable"
    lead = job.rank
    on_gpu = lead.model_copy(
        update={"environment": lead.environment.model_copy(update={"device_type": "cuda"})}
    )
    facts = derive_facts(job.observation.model_copy(update={"ranks": [on_gpu]}), None).facts
    assert facts["sync.trainer_log_reads_per_step"].value == 2.0
    own = sum(site.calls for site in job.observation.sites if site.kind == "device_read")
    assert facts["sync.reads_per_step"].value == (24 + own) / 12
    assert 0.0 < float(str(facts["sync.wait_frac"].value)) < 1.0
