"""The generated script against one plain fp32 process: same loss, gradients and update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from script_job import DENSE, HYBRID, LEAKS, context, metrics, run, write_rows, write_script
from transformers import AutoConfig, AutoModelForCausalLM

from autotune.records.script import BatchContext, MemoryContext, ScriptContext

DRIVER = Path(__file__).with_name("first_step.py")


def reference(
    config: dict[str, Any], rows: list[dict[str, list[int]]], model: torch.nn.Module | None = None
) -> dict[str, Any]:
    """One AdamW step on the mean loss over all supervised tokens, one example at a time, sdpa, fp32."""
    torch.manual_seed(42)
    model = model or AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**config), dtype=torch.float32, attn_implementation="sdpa"
    )
    model.train()
    total = sum(x != -100 for row in rows for x in row["labels"][1:])
    loss = torch.zeros(())
    for row in rows:
        logits = model(input_ids=torch.tensor([row["input_ids"]]), use_cache=False).logits[0]
        part = F.cross_entropy(logits[:-1], torch.tensor(row["labels"][1:]), reduction="sum") / total
        part.backward()
        loss += part.detach()
    gradients = [p.grad.clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-5, weight_decay=0.0)
    optimizer.step()
    return {"loss": float(loss), "gradients": gradients, "weights": [p.detach() for p in model.parameters()]}


def first_step(folder: Path, ctx: ScriptContext, ranks: int) -> dict[str, Any]:
    script = write_script(folder, ctx)
    result = folder / "first_step.pt"
    run(folder, DRIVER, str(script), str(result), ranks=ranks)
    return {**torch.load(result), "loss": metrics(folder)[0]["loss"]}


def agree(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert len(found["gradients"]) == len(expected["gradients"])
    scale = torch.stack([g.norm() for g in expected["gradients"]]).norm()
    for mine, theirs in zip(found["gradients"], expected["gradients"], strict=True):
        assert (mine - theirs).norm() / scale < 1e-5
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(found["weights"], expected["weights"], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


# 8 examples make 4 rows of 64 tokens, or one row of 512: four micro-batches against one.
DENSE_CASES = [
    pytest.param(1, 64, "none", id="1-rank-4-micro-batches", marks=pytest.mark.full),
    pytest.param(1, 512, "selective", id="1-rank-1-micro-batch-selective"),
    pytest.param(2, 64, "full", id="2-ranks-2-micro-batches-full"),
    pytest.param(2, 40, "none", id="2-ranks-4-micro-batches", marks=pytest.mark.full),
]


@pytest.mark.job
@pytest.mark.parametrize(("ranks", "row_tokens", "checkpointing"), DENSE_CASES)
def test_packed_dense_model_is_exact(tmp_path: Path, ranks: int, row_tokens: int, checkpointing: Any) -> None:
    rows = write_rows(tmp_path)
    ctx = context(DENSE, memory=MemoryContext(checkpointing=checkpointing))
    packing = ctx.packing.model_copy(update={"row_tokens": row_tokens})
    agree(first_step(tmp_path, ctx.model_copy(update={"packing": packing}), ranks), reference(DENSE, rows))


@pytest.mark.job
@pytest.mark.parametrize(
    ("ranks", "rows_per_micro_batch"), [(2, 2), pytest.param(1, 1, marks=pytest.mark.full)]
)
def test_hybrid_model_runs_one_example_a_row_and_is_exact(
    tmp_path: Path, ranks: int, rows_per_micro_batch: int
) -> None:
    rows = write_rows(tmp_path)
    batch = BatchContext(examples_per_step=8, rows_per_micro_batch=rows_per_micro_batch, pad_multiple=8)
    ctx = context(HYBRID, packing=LEAKS, batch=batch)
    agree(first_step(tmp_path, ctx, ranks), reference(HYBRID, rows))
    assert "position_ids" not in (tmp_path / "train.py").read_text()
