"""Render small scripts, start them, and read what they did. The script itself has no hook for tests."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from autotune.apply.script import render_script
from autotune.records.script import (
    BatchContext,
    DataContext,
    LossContext,
    MemoryContext,
    ModelContext,
    OptimizerContext,
    PackingContext,
    PrecisionContext,
    RunContext,
    ScriptContext,
)

TEMPLATES = Path(__file__).parents[2] / "templates"
DENSE = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 96,
    "tie_word_embeddings": True,
}
HYBRID = {
    "model_type": "qwen3_5_text",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 96,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
    "tie_word_embeddings": False,
}
ISOLATED = PackingContext(verdict="isolated", reason="the test says so", row_tokens=64)
LEAKS = PackingContext(verdict="leaks", reason="qwen3_5_text with the torch fallback")


def context(config: dict[str, Any], **parts: Any) -> ScriptContext:
    """A tiny fp32 job on `data.jsonl` of tokens, 8 examples a step, no clipping."""
    given: dict[str, Any] = {
        "model": ModelContext(config=config, weights="random"),
        "data": DataContext(source="data.jsonl", kind="tokens", max_length=64),
        "packing": ISOLATED,
        "batch": BatchContext(examples_per_step=8, pad_multiple=8),
        "precision": PrecisionContext(compute="float32"),
        # AdamW's first step divides a gradient by its size; epsilon keeps the rounding of tiny ones out
        "optimizer": OptimizerContext(
            learning_rate=1e-2, epsilon=1e-5, schedule="constant", max_grad_norm=0.0
        ),
        "memory": MemoryContext(checkpointing="none"),
        "loss": LossContext(),
        "run": RunContext(output_dir="out", log_every=1, save_every=0, export=False),
    }
    return ScriptContext(**{**given, **parts})


def write_rows(folder: Path, count: int = 8, vocabulary: int = 96) -> list[dict[str, list[int]]]:
    """Rows of 5 to 40 tokens, of which a third is not supervised."""
    rng = random.Random(0)
    rows = []
    for _ in range(count):
        ids = [rng.randrange(3, vocabulary) for _ in range(rng.randint(5, 40))]
        rows.append({"input_ids": ids, "labels": [-100] * (len(ids) // 3) + ids[len(ids) // 3 :]})
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def write_script(folder: Path, ctx: ScriptContext, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(render_script(ctx, TEMPLATES))
    return path


def load_script(path: Path) -> ModuleType:
    """The rendered script as a module, for its parts."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(
    folder: Path, script: Path, *arguments: str, ranks: int = 1, **env: str
) -> list[subprocess.Popen[str]]:
    """One process per rank with the environment that torchrun gives them."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    processes = []
    for rank in range(ranks):
        given = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": ranks,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, str(script), *arguments],
                cwd=folder,
                env={**os.environ, "OMP_NUM_THREADS": "1", **{k: str(v) for k, v in given.items()}, **env},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return processes


def run(folder: Path, script: Path, *arguments: str, ranks: int = 1, **env: str) -> str:
    """Run to the end; the output of all ranks."""
    processes = start(folder, script, *arguments, ranks=ranks, **env)
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(outputs)[-4000:]
    return "\n".join(outputs)


def metrics(folder: Path, out: str = "out") -> list[dict[str, float]]:
    path = folder / out / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
