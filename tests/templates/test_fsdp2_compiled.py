"""The generated script compiled, by inductor for the CPU: same numbers, no graph breaks, few compilations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from script_job import DENSE, HYBRID, LEAKS, context, metrics, run, write_rows, write_script
from test_fsdp2_numerics import agree, reference

from autotune.records.script import BatchContext, LossContext, MemoryContext, ScriptContext

DRIVER = Path(__file__).with_name("compiled_steps.py")


def compiled(part: str, checkpointing: Any = "none") -> MemoryContext:
    return MemoryContext(checkpointing=checkpointing, compile=part, compile_on="cpu")  # type: ignore[arg-type]


def watched(folder: Path, ctx: ScriptContext, *words: str) -> dict[str, Any]:
    """Gradients and weights of the first step, the losses of all, and what the compiler did."""
    import torch

    script = write_script(folder, ctx)
    run(folder, DRIVER, str(script), str(folder / "first_step.pt"), *words)
    counts = json.loads((folder / "first_step.json").read_text())
    return {**torch.load(folder / "first_step.pt"), "loss": metrics(folder)[0]["loss"], "counts": counts}


@pytest.mark.job
@pytest.mark.parametrize(
    "checkpointing",
    ["full", pytest.param("none", marks=pytest.mark.full), pytest.param("selective", marks=pytest.mark.full)],
)
def test_compiled_blocks_are_exact_and_compile_once(tmp_path: Path, checkpointing: str) -> None:
    """Four micro-batches with different numbers of examples; all blocks share one compilation."""
    rows = write_rows(tmp_path)
    ctx = context(DENSE, memory=compiled("blocks", checkpointing), loss=LossContext(attention="sdpa"))
    found = watched(tmp_path, ctx, "--epochs", "2")
    agree(found, reference(DENSE, rows))
    assert found["counts"]["graph_break"] == {}
    assert found["counts"]["frames"].keys() == {"forward", "target_gradient"}
    assert all(times <= 2 for times in found["counts"]["frames"].values()), found["counts"]


@pytest.mark.job
def test_compiled_norms_and_mlps_of_a_hybrid_are_exact(tmp_path: Path) -> None:
    rows = write_rows(tmp_path)
    batch = BatchContext(examples_per_step=8, rows_per_micro_batch=2, pad_multiple=8)
    ctx = context(HYBRID, packing=LEAKS, batch=batch, memory=compiled("parts", "full"))
    found = watched(tmp_path, ctx, "--epochs", "2")
    agree(found, reference(HYBRID, rows))
    assert found["counts"]["graph_break"] == {}
