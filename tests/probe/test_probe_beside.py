"""What a loop does besides training, gradients nobody uses, positions without a label: seen in real jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobs import faults, run

from autotune.data import data_dir
from autotune.facts.everything import derive_facts
from autotune.records.facts import FactSheet
from autotune.trace.summary import summarize

torch = pytest.importorskip("torch")


def facts_of(folder: Path, *words: str) -> dict[str, Any]:
    job = run(folder, "beside_loop.py", *words, mode="profile")
    assert faults(job) == [], job.errors[-2000:]
    assert job.rank.trace_file is not None
    traces = summarize([job.folder / job.rank.trace_file], tables_dir=data_dir("rules") / "_tables")
    sheet: FactSheet = derive_facts(job.observation, traces)
    return {name: fact.value for name, fact in sheet.facts.items()}


@pytest.mark.job
def test_a_loop_that_does_much_besides_training(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, "tower", "statistics", "prints", "anomaly", "head", "--low-memory")
    assert facts["model.unused_gradient_modules"] == ["tower"]
    tower, rest = 4 * (32 * 32 + 32), 1024 * 32 + 32 * 32 + 32 + 1024 * 32 + 1024
    assert facts["model.unused_gradient_frac"] == pytest.approx(tower / (tower + rest))
    assert 0.3 < facts["model.needless_backward_frac"] < 0.9
    assert facts["stall.values_read_per_step"] == 10.0  # two of each of five trained parameters
    assert facts["stall.beside_frac"] > 0.1
    assert facts["stall.log_frac"] > 0.01
    assert facts["debug.anomaly_detection"] is True
    # 92 positions go through the softmax, of 4 rows of 24; 24 of them have a label
    assert facts["loss.unsupervised_frac"] == pytest.approx(1 - 24 / 92)
    assert 0.02 < facts["loss.head_frac"] <= 1.0
    assert facts["memory.checkpointing"] is True and facts["memory.checkpointing_asked"] is True
    assert 0.0 < facts["memory.host_peak_frac"] < 1.0


@pytest.mark.job
def test_a_loop_that_only_trains(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, "packed")
    assert facts["model.unused_gradient_frac"] == facts["model.needless_backward_frac"] == 0.0
    assert facts["model.unused_gradient_modules"] == []
    assert facts["stall.values_read_per_step"] == 0.0
    assert facts["stall.beside_frac"] < 0.5
    assert facts["debug.anomaly_detection"] is False
    assert facts["loss.unsupervised_frac"] == pytest.approx(0.0)
    assert facts["packing.packed"] is True  # two documents begin inside each row, and nothing says so
    assert facts["packing.boundary_arguments"] == []
