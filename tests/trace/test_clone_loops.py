"""Row-by-row forward substitution, transformers' fallback before 5.17, is told from other loops that copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from autotune.data import data_dir
from autotune.facts.sheet import SheetBuilder
from autotune.facts.trace.parts import kernel_facts
from autotune.trace.summary import summarize


def substitute(blocks: Any) -> None:
    for i in range(1, blocks.shape[-1]):
        row, above = blocks[..., i, :i].clone(), blocks[..., :i, :i].clone()
        blocks[..., i, :i] = row + (row.unsqueeze(-1) * above).sum(-2)


def copy(blocks: Any) -> None:
    for _ in range(1, blocks.shape[-1]):
        blocks[..., :16, :16].clone()


@pytest.mark.parametrize(("loop", "least"), [(substitute, 60), (copy, 0)])
def test_a_loop_in_a_trace(tmp_path: Path, loop: Any, least: int) -> None:
    blocks = torch.rand(2, 2, 3, 64, 64) / 64
    with torch.profiler.profile(record_shapes=True) as profile:
        loop(blocks)
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    traces = summarize([tmp_path / "trace.json"], tables_dir=data_dir("rules") / "_tables", processes=1)
    sheet = SheetBuilder()
    kernel_facts(sheet, traces.ranks[0], 1, "one step")
    found = sheet.value("kernels.fallback_solves_per_step")
    assert found == traces.ranks[0].linear_attention.clone_loop_calls
    assert (found >= least) if least else (found == 0)
