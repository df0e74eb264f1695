"""What the generator plants is recovered exactly."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from autotune.records.trace import TraceSummary
from autotune.trace.summary import summarize
from tests.trace.recorded import ROOT, TABLES


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("gen_trace", ROOT / "bench" / "gen_trace.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = generator()


def test_launch_bound_step(tmp_path: Path) -> None:
    file = tmp_path / "step.json.gz"
    truth = GENERATOR.write_step(file, kernels=3_000)
    item = summarize([file], tables_dir=TABLES).ranks[0]
    assert item.gpu is not None and item.launch is not None
    assert (item.file.events, item.file.cpu_ops, item.file.kernels) == (
        truth["events"],
        truth["cpu_ops"],
        truth["kernels"],
    )
    assert round(item.gpu.span_ms * 1e6) == truth["span_ns"]
    assert round(item.gpu.busy_ms * 1e6) == truth["busy_ns"]
    assert round(item.gpu.idle_ms * 1e6) == truth["idle_ns"]
    found = {row.name: [row.count, round(row.total_ms * 1e6)] for row in item.classes}
    assert found == truth["classes"]
    assert item.launch.calls == item.launch.matched_kernels == truth["kernels"]
    assert item.launch.started_at_once_frac is not None and item.launch.started_at_once_frac > 0.3
    path = item.critical_path
    assert path is not None
    assert sum(part.total_ms for part in path.parts) == pytest.approx(path.span_ms, abs=1e-6)


@pytest.fixture(scope="module", params=[(4, 2, 900), (3, 0, 350), (2, None, 0)], ids=str)
def ranks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, TraceSummary]:
    count, late, late_us = request.param
    folder = tmp_path_factory.mktemp("ranks")
    truth = GENERATOR.write_fsdp2(folder, ranks=count, layers=5, late_rank=late, late_us=late_us)
    files = sorted(folder.glob("*.json.gz"), reverse=True)
    return truth, summarize(files, tables_dir=TABLES, processes=1)


def test_overlap_of_each_rank(ranks: tuple[Any, TraceSummary]) -> None:
    truth, summary = ranks
    assert [item.rank for item in summary.ranks] == sorted(truth["ranks"])
    for item in summary.ranks:
        planted = truth["ranks"][item.rank]
        assert item.gpu is not None
        assert item.communication.union_ms is not None and item.communication.exposed_ms is not None
        assert round(item.gpu.busy_ms * 1e6) == planted["busy_ns"]
        assert round(item.communication.union_ms * 1e6) == planted["communication_ns"]
        assert round(item.communication.exposed_ms * 1e6) == planted["exposed_ns"]
        assert round(item.gpu.compute_ms * 1e6) == planted["compute_ns"]
        assert [(unit.all_gathers, unit.reduce_scatters) for unit in item.fsdp_units] == [(2, 1)] * 5


def test_wait_transfer_and_late_rank(ranks: tuple[Any, TraceSummary]) -> None:
    truth, summary = ranks
    cross = summary.cross_rank
    assert cross is not None and cross.collectives_unmatched == 0
    for row in cross.aligned:
        assert round(row.transfer_ms * 1e6) == truth["transfer_ns"][row.kind]
        waits = [round(row.wait_ms[rank] * 1e6) for rank in sorted(row.wait_ms)]
        assert waits == truth["wait_ns"][row.kind]
    assert cross.late_rank == truth["late_rank"]
    if cross.late_rank is not None:
        assert cross.late_by_ms is not None
        assert round(cross.late_by_ms * 1e6) == truth["late_by_ns"]
        load = next(item for item in cross.ranks if item.rank == cross.late_rank)
        assert load.last_arrivals == truth["last_arrivals"] and load.wait_ms == 0
    assert cross.clock == "estimated"  # the ranks' clocks differ by milliseconds


def test_parallel_processes_give_the_same_answer(tmp_path: Path) -> None:
    GENERATOR.write_fsdp2(tmp_path, ranks=2, layers=2, late_rank=1, late_us=200)
    files = sorted(tmp_path.glob("*.json.gz"))
    assert summarize(files, tables_dir=TABLES, processes=2) == summarize(
        files, tables_dir=TABLES, processes=1
    )


def test_one_rank_has_no_cross_rank_view(tmp_path: Path) -> None:
    GENERATOR.write_fsdp2(tmp_path, ranks=2, layers=2)
    summary = summarize([tmp_path / "rank0.json.gz"], tables_dir=TABLES)
    assert summary.cross_rank is None
    assert summary.ranks[0].communication.wait_or_transfer == "unknown"
