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


def watched(folder: Path, ctx: ScriptContext, backend: str) -> dict[str, Any]:
    """Gradients and weights of the first of two steps, its loss, and what the compiler did."""
    import torch

    script = write_script(folder, ctx)
    result = folder / "first_step.pt"
    run(folder, DRIVER, str(script), str(result), "--epochs", "2", BACKEND=backend)
    counts = json.loads(result.with_suffix(".json").read_text())
    return {**torch.load(result), "loss": metrics(folder)[0]["loss"], "counts": counts}


WITH_CODE = pytest.param("inductor", marks=pytest.mark.full)


@pytest.mark.job
@pytest.mark.parametrize("backend", ["aot_eager", WITH_CODE])
@pytest.mark.parametrize(
    "checkpointing", ["full", *(pytest.param(c, marks=pytest.mark.full) for c in ("none", "selective"))]
)
def test_compiled_blocks_are_exact_and_compile_once(tmp_path: Path, checkpointing: str, backend: str) -> None:
    """Micro-batches with different numbers of examples: blocks share one compilation, without breaks."""
    rows = write_rows(tmp_path)
    ctx = context(DENSE, memory=compiled("blocks", checkpointing), loss=LossContext(attention="sdpa"))
    found = watched(tmp_path, ctx, backend)
    agree(found, reference(DENSE, rows))
    counts = found["counts"]
    assert counts["graph_break"] == {}
    assert counts["frames"] == {"forward": 2 if checkpointing == "selective" else 1, "target_gradient": 1}


@pytest.mark.job
@pytest.mark.full
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_norms_and_mlps_of_a_hybrid_are_exact(tmp_path: Path, backend: str) -> None:
    """Recurrent layers stay outside; padded micro-batches of changing width."""
    rows = write_rows(tmp_path)
    batch = BatchContext(examples_per_step=8, rows_per_micro_batch=2, pad_multiple=8)
    ctx = context(HYBRID, packing=LEAKS, batch=batch, memory=compiled("parts", "full"))
    found = watched(tmp_path, ctx, backend)
    agree(found, reference(HYBRID, rows))
    counts = found["counts"]
    assert counts["graph_break"] == {}
    assert counts["frames"]["forward"] <= 6 and counts["frames"]["target_gradient"] == 1
