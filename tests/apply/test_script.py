"""Rendering the FSDP2 script: every variant compiles, is tidy, short, and says what it took over."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from script_matrix import CHOICES, LEFT, TAKEN, context_of, longest, pairwise

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

MOST_LINES = 540  # with everything at once
TEMPLATES = Path(__file__).parents[2] / "templates"
PACKED = PackingContext(verdict="isolated", reason="qwen3 with softmax attention only")
CHAT = DataContext(source="chats/*.jsonl", kind="messages", eval_source="held_out.jsonl")
OBSERVED = {
    "run_id": "20260101-120000-abcd",
    "observed_command": "torchrun --nproc-per-node 8 train.py --lr 2e-5",
    "taken_over": [TakenOver(what=what, value=value, source=source) for what, value, source in TAKEN],
    "not_taken_over": [NotTakenOver(what=what, reason=reason) for what, reason in LEFT],
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
        "memory": MemoryContext(checkpointing="none", compile="blocks"),
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
        "memory": MemoryContext(checkpointing="selective", compile="blocks"),
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


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Scripts by name: the usual ones, rare ones, and those in which every pair of choices occurs."""
    folder = tmp_path_factory.mktemp("scripts")
    contexts = {name: context(**parts) for name, parts in {**USUAL, **RARE}.items()}
    contexts["longest"] = context_of(longest())
    contexts |= {f"pairs {n}": context_of(choice) for n, choice in enumerate(pairwise())}
    paths = {name: folder / f"script_{n}.py" for n, name in enumerate(contexts)}
    for name, path in paths.items():
        path.write_text(render_script(contexts[name], TEMPLATES))
    return paths


def test_scripts_are_formatted_and_have_no_loose_ends(rendered: dict[str, Path]) -> None:
    ruff = [sys.executable, "-m", "ruff"]
    plain = ["--isolated", "--line-length", "120", "--target-version", "py310", *rendered.values()]
    shown = subprocess.run([*ruff, "format", "--diff", *plain], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stdout
    checked = [*ruff, "check", "--select", "E,F,B,PLE", "--output-format", "concise", *plain]
    found = subprocess.run(checked, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout
    for path in rendered.values():
        tree = ast.parse(path.read_text())
        modules = {alias.name.split(".")[0] for node in ast.walk(tree) for alias in names_of(node)}
        assert "autotune" not in modules


def names_of(node: ast.AST) -> list[ast.alias]:
    if isinstance(node, ast.ImportFrom):
        return [ast.alias(name=node.module or "")]
    return node.names if isinstance(node, ast.Import) else []


def test_scripts_are_short(rendered: dict[str, Path]) -> None:
    """500 lines with what jobs usually have, 500 lines that are not empty whatever is chosen together."""
    for name, path in rendered.items():
        lines = path.read_text().splitlines()
        assert sum(bool(line.strip()) for line in lines) <= 500, name
        assert len(lines) <= (500 if name in USUAL else MOST_LINES), name


def test_every_pair_of_choices_is_rendered() -> None:
    pairs = {
        ((a, choice[a]), (b, choice[b]))
        for choice in pairwise()
        for a, b in itertools.combinations(CHOICES, 2)
    }
    assert len(pairs) == sum(len(CHOICES[a]) * len(CHOICES[b]) for a, b in itertools.combinations(CHOICES, 2))


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


def test_blocks_are_compiled_where_the_family_is_known_to_have_no_graph_breaks() -> None:
    def line(**parts: Any) -> str:
        source = render_script(context(**parts), TEMPLATES)
        doc = ast.get_docstring(ast.parse(source)) or ""
        return next((text for text in doc.splitlines() if text.startswith("Compiled on")), "")

    known = ModelContext(path="/models/m", family="qwen3")
    assert line(model=known).startswith("Compiled on a GPU: blocks and loss (qwen3 blocks compile without")
    other = ModelContext(path="/models/m", family="qwen3_5_text")
    assert line(model=other).startswith("Compiled on a GPU: norms, MLPs and loss (not known whether qwen3_5 ")
    fused = ModelContext(path="/models/m", family="qwen3", liger_layers=True)
    assert line(model=fused) == ""
    never = MemoryContext(compile="never")
    assert line(model=known, memory=never) == ""
    assert "torch.compil" not in render_script(context(model=known, memory=never), TEMPLATES)


def test_schedule_is_stretched_where_packing_changes_the_number_of_steps() -> None:
    made_for = OptimizerContext(schedule_steps=1000, warmup_steps=100)
    source = render_script(context(optimizer=made_for, batch=BatchContext(rows_per_step=8)), TEMPLATES)
    assert "rate(step * planned / total)" in source and "schedule_steps=1000" in source
    assert "schedule and warm-up are" in " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    same_steps = render_script(context(optimizer=made_for), TEMPLATES)  # as many examples a step as before
    assert "schedule_steps" not in same_steps


def test_what_cannot_be_rendered_is_refused() -> None:
    with pytest.raises(InputError, match="max_steps"):
        render_script(context(data=STREAM), TEMPLATES)
    with pytest.raises(InputError, match=r"memory\.compile"):
        never = MemoryContext(compile="never")
        render_script(context(precision=PrecisionContext(float8=True), memory=never), TEMPLATES)
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


def test_a_training_script_has_no_cache_in_its_model_config() -> None:
    part = {"model_type": "qwen3", "use_cache": True, "hidden_size": 32}
    model = ModelContext(
        config={"model_type": "qwen3_vl", "use_cache": True, "text_config": part}, weights="random"
    )
    lines = [
        line
        for line in render_script(context(model=model, data=HOOK), TEMPLATES).splitlines()
        if line.startswith("MODEL_CONFIG")
    ]
    assert "use_cache" not in str(lines) and "'hidden_size': 32" in str(lines).replace('"', "'")
