"""Rendering the FSDP2 script: every variant compiles, is tidy, short, and says what it took over."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from autotune.apply.packing_gate import packing_decision
from autotune.apply.script import render_script
from autotune.errors import InputError
from autotune.records.script import (
    BatchContext,
    DataContext,
    LoraContext,
    LossContext,
    MemoryContext,
    ModelContext,
    NotTakenOver,
    OptimizerContext,
    PackingContext,
    ParallelContext,
    PrecisionContext,
    RunContext,
    ScriptContext,
    TakenOver,
)

TEMPLATES = Path(__file__).parents[2] / "templates"
PACKED = PackingContext(verdict="isolated", reason="qwen3 with softmax attention only")
CHAT = DataContext(source="chats/*.jsonl", kind="messages", eval_source="held_out.jsonl")
OBSERVED = {
    "run_id": "20260101-120000-abcd",
    "observed_command": "torchrun --nproc-per-node 8 train.py --lr 2e-5",
    "taken_over": [
        TakenOver(what=what, value=value, source=source)
        for what, value, source in [
            ("model", "/models/m", "train.py:12"),
            ("data", "chats/*.jsonl", "train.py:20"),
            ("examples per step", "64", "8 ranks x 4 x 2"),
            ("learning rate", "2e-5", "train.py:41"),
            ("schedule", "cosine, 100 warm-up steps", "train.py:44"),
            ("weight decay", "0.01", "train.py:41"),
            ("clipping", "1.0", "train.py:60"),
            ("seed", "1234", "train.py:9"),
            ("epochs", "3", "--epochs"),
        ]
    ],
    "not_taken_over": [
        NotTakenOver(what="label smoothing", reason="not in this script"),
        NotTakenOver(what="order of the examples", reason="own seeded order"),
    ],
}


def context(**parts: Any) -> ScriptContext:
    given: dict[str, Any] = {"model": ModelContext(path="/models/m"), "data": CHAT, "packing": PACKED}
    return ScriptContext(**{**given, "batch": BatchContext(examples_per_step=64), **parts})


LORA = ModelContext(path="/models/m", lora=LoraContext(target_modules=["q_proj", "v_proj"]))
FROM_CONFIG = ModelContext(
    config={"model_type": "llama", "rope_parameters": {"rope_type": "default"}}, weights="random"
)
HOOK = DataContext(source="train.py:ChatData", kind="tokens", hook_arguments={"path": 'it\'s "here"', "n": 3})
STREAM = DataContext(source="org/corpus", kind="text", streaming=True)
USUAL = {
    "full fine-tuning, chat, packed": {},
    "observed job": OBSERVED,
    "from a config, hook": {"model": FROM_CONFIG, "data": HOOK},
    "from a config, hook with a tokenizer file": {
        "model": FROM_CONFIG.model_copy(update={"tokenizer": "tokenizer.json"}),
        "data": HOOK.model_copy(update={"tokenizer_argument": "tok"}),
    },
    "LoRA": {"model": LORA, "data": DataContext(source="chats.jsonl", kind="messages")},
    "LoRA with evaluation": {"model": LORA},
    "LoRA with evaluation, observed": {"model": LORA, **OBSERVED},
    "LoRA with evaluation, data set of the hub, observed": {
        "model": LORA,
        "data": CHAT.model_copy(update={"source": "org/chats"}),
        **OBSERVED,
    },
    "LoRA with evaluation and a tracker, observed": {
        "model": LORA,
        "run": RunContext(tracker="wandb"),
        **OBSERVED,
    },
    "one example a row": {"packing": PackingContext(verdict="leaks", reason="qwen3_5 on the torch fallback")},
    "continued pre-training, HSDP": {
        "data": DataContext(source="corpus/*.parquet", kind="text"),
        "batch": BatchContext(rows_per_step=64),
        "parallel": ParallelContext(replicas=2),
    },
    "continued pre-training, streamed": {
        "data": STREAM,
        "batch": BatchContext(rows_per_step=64),
        "optimizer": OptimizerContext(max_steps=10),
    },
    "prompts and completions, no checkpointing, compiled": {
        "data": DataContext(source="pairs.json", kind="prompt_completion"),
        "memory": MemoryContext(checkpointing="none", compile_blocks=True),
        "run": RunContext(tracker="wandb"),
    },
}
RARE = {
    "everything at once": {
        "model": ModelContext(path="org/m", lora=LoraContext(), liger_layers=True, trust_remote_code=True),
        "data": STREAM.model_copy(
            update={"source": "org/chats", "kind": "messages", "eval_source": "my.data:held_out"}
        ),
        "batch": BatchContext(rows_per_step=64),
        "optimizer": OptimizerContext(max_steps=10),
        "parallel": ParallelContext(replicas=2),
        "memory": MemoryContext(checkpointing="selective", compile_blocks=True),
        "precision": PrecisionContext(float8=True),
        "run": RunContext(tracker="tensorboard"),
        **OBSERVED,
    },
    "lowest learning rate": {"optimizer": OptimizerContext(schedule="cosine_with_min_lr", min_lr_ratio=0.1)},
    "streamed by examples": {"data": STREAM, "optimizer": OptimizerContext(max_steps=10)},
    "liger loss, mlflow": {"loss": LossContext(head="liger"), "run": RunContext(tracker="mlflow")},
    "model's own loss, padded": {
        "loss": LossContext(head="model"),
        "packing": PackingContext(requested=False),
    },
}


@pytest.mark.parametrize("name", [*USUAL, *RARE])
def test_script_compiles_is_formatted_and_has_no_loose_ends(name: str, tmp_path: Path) -> None:
    source = render_script(context(**{**USUAL, **RARE}[name]), TEMPLATES)
    path = tmp_path / "script.py"
    path.write_text(source)
    modules = {alias.name.split(".")[0] for node in ast.walk(ast.parse(source)) for alias in names_of(node)}
    assert "autotune" not in modules
    ruff = [sys.executable, "-m", "ruff"]
    plain = ["--isolated", "--line-length", "120", "--target-version", "py310"]
    shown = subprocess.run([*ruff, "format", "--diff", *plain, path], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stdout
    checked = [*ruff, "check", "--select", "E,F,B,PLE", "--output-format", "concise", *plain, path]
    found = subprocess.run(checked, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def names_of(node: ast.AST) -> list[ast.alias]:
    if isinstance(node, ast.ImportFrom):
        return [ast.alias(name=node.module or "")]
    return node.names if isinstance(node, ast.Import) else []


@pytest.mark.parametrize("name", USUAL)
def test_usual_scripts_have_at_most_500_lines(name: str) -> None:
    assert render_script(context(**USUAL[name]), TEMPLATES).count("\n") <= 500


def test_every_script_has_at_most_600_lines() -> None:
    for parts in RARE.values():
        assert render_script(context(**parts), TEMPLATES).count("\n") <= 600


def test_header_says_what_was_taken_over_and_what_was_not() -> None:
    docstring = ast.get_docstring(ast.parse(render_script(context(**OBSERVED), TEMPLATES)))
    assert docstring is not None
    text = " ".join(docstring.split())
    assert "run 20260101-120000-abcd: torchrun --nproc-per-node 8 train.py --lr 2e-5" in text
    assert "learning rate 2e-5 (train.py:41)" in text
    assert "Not taken over: label smoothing (not in this script)" in text
    assert "Rows are packed: qwen3 with softmax attention only" in text


def test_header_cannot_break_the_script() -> None:
    evil = TakenOver(what="path", value='C:\\new """ + boom', source="x")
    source = render_script(context(taken_over=[evil], title='A """ title'), TEMPLATES)
    assert "boom" in (ast.get_docstring(ast.parse(source)) or "")


def test_values_arrive_as_they_were() -> None:
    source = render_script(context(**USUAL["from a config, hook"]), TEMPLATES)
    tree = ast.parse(source)
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Dict)
    }
    assert values["HOOK"] == {"path": 'it\'s "here"', "n": 3}
    assert values["MODEL_CONFIG"] == FROM_CONFIG.config


@pytest.mark.parametrize("verdict", ["leaks", "unknown"])
def test_only_isolated_rows_are_packed(verdict: Any) -> None:
    reason = "as the table says"
    source = render_script(context(packing=PackingContext(verdict=verdict, reason=reason)), TEMPLATES)
    assert "cu_seq_lens_q" not in source.replace('kwargs.get("cu_seq_lens_q")', "")
    assert f"Rows are not packed, one example a row: {reason}." in source


def test_packing_decision() -> None:
    assert packing_decision("qwen3", "dense", "5.17.0").packs
    assert packing_decision("qwen3_5_text", "fast", "5.17.0").packs
    fallback = packing_decision("qwen3_5_text", "fallback", "5.17.0")
    assert fallback.verdict == "leaks" and "torch fallback" in fallback.reason
    kimi = packing_decision("kimi_linear", "fast", "5.17.0")
    assert kimi.packs and kimi.boundary_arguments[-1] == "cu_seqlens"
    assert packing_decision("qwen3_5", None, "5.17.0").verdict == "unknown"
    assert packing_decision("a_family_of_tomorrow", "dense", "5.17.0").verdict == "unknown"
    assert packing_decision("qwen3", "dense", None).verdict == "unknown"
    one_row = PackingContext(requested=False)
    assert not packing_decision("qwen3", "dense", "5.17.0", one_row).packs


def test_what_cannot_be_rendered_is_refused() -> None:
    with pytest.raises(InputError, match="max_steps"):
        render_script(context(data=STREAM), TEMPLATES)
    with pytest.raises(InputError, match="compile_blocks"):
        render_script(context(precision=PrecisionContext(float8=True)), TEMPLATES)
    with pytest.raises(InputError, match="tokenizer"):
        render_script(context(model=FROM_CONFIG), TEMPLATES)
    with pytest.raises(ValidationError, match="path"):
        ModelContext(config={"model_type": "llama"})


def test_a_template_with_an_unknown_name_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "fsdp2").mkdir()
    (tmp_path / "fsdp2" / "train.py.j2").write_text("x = {{ no_such_value }}\n")
    with pytest.raises(InputError, match="no_such_value"):
        render_script(context(), tmp_path)
    (tmp_path / "fsdp2" / "train.py.j2").write_text("x = = 1\n")
    with pytest.raises(InputError, match="not valid Python"):
        render_script(context(), tmp_path)
