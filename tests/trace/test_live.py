"""Traces recorded here and now by the installed torch, from a real training loop on the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.records.trace import RankTrace
from autotune.trace.summary import summarize
from tests.trace.recorded import ROOT, TABLES

pytestmark = pytest.mark.job


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    target = tmp_path_factory.mktemp("live")
    script = ROOT / "tests" / "trace" / "record_cpu.py"
    subprocess.run([sys.executable, str(script), str(target)], check=True, capture_output=True, timeout=300)
    return target


def rank(folder: Path, name: str) -> RankTrace:
    return summarize([folder / name], tables_dir=TABLES).ranks[0]


def test_marked_steps(folder: Path) -> None:
    item = rank(folder, "marked.json")
    assert (item.steps.source, item.steps.count, item.steps.micro_batches) == ("profiler_step", 3, 1)
    assert item.validity.training is True and item.gpu is None and item.device is None
    assert item.attention.backends == {"flash": 9} and item.attention.backward_calls == {"flash": 9}
    assert (item.attention.mask_passed, item.attention.mask_absent, item.attention.causal) == (0, 9, True)
    assert item.recompute.detected is False
    assert {row.region for row in item.regions} >= {"forward", "backward", "optimizer"}
    assert (item.optimizer.name, item.optimizer.implementation) == ("AdamW", "for_loop")
    assert item.optimizer.clip_calls == 3
    assert item.data_loading.calls == 3
    assert item.flops is not None and item.flops.total_gflop > 0 and item.flops.busy_tflops is None


def test_time_of_products_in_fp64(folder: Path) -> None:
    double, single = rank(folder, "double.json").flops, rank(folder, "marked.json").flops
    assert double is not None and double.fp64_ms == pytest.approx(double.counted_ms) and double.fp64_ms > 0
    assert single is not None and single.fp64_ms == 0.0


def test_time_of_products_with_a_one_hot_matrix(folder: Path) -> None:
    found, without = rank(folder, "one_hot.json").flops, rank(folder, "marked.json").flops
    assert found is not None and found.one_hot_classes == 64
    assert found.one_hot_ms is not None and 0 < found.one_hot_ms < found.counted_ms
    # one-hot labels of a loss are in no product, also where the model is as wide as there are classes
    for name, classes in (("smoothed.json", 64), ("as_wide.json", 32)):
        labels = rank(folder, name).flops
        assert labels is not None and (labels.one_hot_classes, labels.one_hot_ms) == (classes, 0.0)
    assert without is not None and without.one_hot_ms is without.one_hot_classes is None


def test_matmul_work_is_counted_exactly(folder: Path) -> None:
    item = rank(folder, "marked.json")
    assert item.flops is not None
    tokens, width, vocabulary, steps = 4 * 16, 32, 64, 3
    weights = 3 * (width * 3 * width + width * width) + width * vocabulary
    linear = 3 * 2 * tokens * weights * steps  # forward, input gradient, weight gradient
    matmul = sum(row.gflop for row in item.flops.rows if row.op in ("aten::mm", "aten::addmm")) * 1e9
    assert round(matmul) == linear


def test_second_writer_gives_the_same_numbers(folder: Path) -> None:
    if not (folder / "second.json.gz").exists():
        pytest.skip("this torch has one writer")
    one, other = rank(folder, "marked.json"), rank(folder, "second.json.gz")
    assert one.tables == other.tables and one.steps == other.steps and one.regions == other.regions


def test_steps_without_marks(folder: Path) -> None:
    item = rank(folder, "unmarked.json")
    assert (item.steps.source, item.steps.count) == ("optimizer_annotation", 3)
    assert item.validity.has("no_profiler_step")


def test_gradient_accumulation(folder: Path) -> None:
    steps = rank(folder, "accumulate.json").steps
    assert (steps.count, steps.micro_batches) == (2, 4)


def test_recomputation_is_seen_without_stacks(folder: Path) -> None:
    found = rank(folder, "recompute.json").recompute
    assert (found.detected, found.regions) == (True, 6)
    pairs = {pair.forward: (pair.forward_count, pair.backward_count) for pair in found.pairs}
    assert pairs["aten::native_layer_norm"] == (12, 6)


def test_stacks_and_memory(folder: Path) -> None:
    item = rank(folder, "stacks.json")
    assert item.file.has_python_stacks and item.cpu.python_ms is not None
    assert item.memory is not None and item.memory.peak_allocated_gib > 0
    assert not item.validity.has("nesting_disorder")
    assert item.optimizer.clip_calls == 2


def test_fused_optimizer(folder: Path) -> None:
    assert rank(folder, "fused.json").optimizer.implementation == "fused"
