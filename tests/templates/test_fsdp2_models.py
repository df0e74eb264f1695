"""Weights from a folder, adapters, replicas, streamed data: each against a plain process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from script_job import DENSE, context, metrics, run, write_rows, write_script
from test_fsdp2_numerics import agree, first_step, reference
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from autotune.records.script import (
    BatchContext,
    DataContext,
    LoraContext,
    ModelContext,
    OptimizerContext,
    ParallelContext,
    RunContext,
)

pytestmark = [pytest.mark.job, pytest.mark.full]


def saved_model(folder: Path) -> torch.nn.Module:
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**DENSE), dtype=torch.float32)
    model.save_pretrained(folder / "base")
    return model


def a_tokenizer(folder: Path) -> Path:
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder / "words")
    return folder / "words"


def test_weights_are_read_in_slices_and_replicas_agree(tmp_path: Path) -> None:
    rows, model = write_rows(tmp_path), saved_model(tmp_path)
    data = DataContext(source="data.jsonl", kind="tokens", max_length=64, eval_source="data.jsonl")
    ctx = context(
        DENSE,
        model=ModelContext(path="base", tokenizer=str(a_tokenizer(tmp_path))),
        data=data,
        parallel=ParallelContext(replicas=2),
        run=RunContext(output_dir="out", log_every=1, save_every=0),
    )
    agree(first_step(tmp_path, ctx, ranks=2), reference(DENSE, rows, model))
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "model", dtype=torch.float32)
    assert AutoTokenizer.from_pretrained(tmp_path / "out" / "model").tokenize("b a") == ["b", "a"]
    logged = metrics(tmp_path)[-1]
    assert logged["eval_loss"] == pytest.approx(reference(DENSE, rows, again)["loss"], rel=1e-4)


def test_adapters_are_trained_alone_and_can_be_loaded(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    rows, model = write_rows(tmp_path), saved_model(tmp_path)
    ctx = context(
        DENSE,
        model=ModelContext(path="base", lora=LoraContext(rank=4)),
        optimizer=OptimizerContext(learning_rate=1e-2, epochs=4, max_grad_norm=1.0),
        run=RunContext(output_dir="out", log_every=1, save_every=2),
    )
    script = write_script(tmp_path, ctx)
    run(tmp_path, script, ranks=2)
    losses = [record["loss"] for record in metrics(tmp_path)]
    assert losses[0] == pytest.approx(reference(DENSE, rows, model)["loss"], rel=1e-5)  # B starts at zero
    assert losses[-1] < losses[0]
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "out" / "model")
    changed = [p for name, p in adapted.named_parameters() if "lora_B" in name and p.abs().max() > 0]
    assert changed
    run(tmp_path, script, "--epochs", "5", ranks=1)  # adapters and AdamW states resume on fewer ranks
    assert [int(r["step"]) for r in metrics(tmp_path)] == [1, 2, 3, 4, 5]
    assert metrics(tmp_path)[-1]["loss"] < losses[0]


def test_streamed_data_makes_the_same_steps_for_any_number_of_ranks(tmp_path: Path) -> None:
    write_rows(tmp_path, count=60)
    ctx = context(
        DENSE,
        data=DataContext(source="data.jsonl", kind="tokens", streaming=True, shuffle_window=16),
        batch=BatchContext(rows_per_step=4, pad_multiple=8),
        optimizer=OptimizerContext(learning_rate=1e-2, max_steps=10),
    )
    script = write_script(tmp_path, ctx)
    run(tmp_path, script, ranks=1)
    run(tmp_path, script, "--output-dir", "two", ranks=2)
    one, two = ([r["loss"] for r in metrics(tmp_path, out)] for out in ("out", "two"))
    assert len(one) == 10 and one == pytest.approx(two, rel=1e-5)
    windows = sorted(p.name for p in next((tmp_path / "token_cache").iterdir()).iterdir())
    assert windows == ["0.pt", "1.pt", "2.pt", "3.pt", "4.pt"]  # the last one marks the end


def test_one_unreadable_row_is_named_and_stops_the_job(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(json.dumps({"input_ids": list(range(3, 90))}) + "\n")
    script = write_script(tmp_path, context(DENSE))
    with pytest.raises(AssertionError, match="87 tokens, limit 64: --long-examples split or truncate"):
        run(tmp_path, script)
