"""Contexts for generated scripts: every pair of choices occurs in one; another has all that is long."""

from __future__ import annotations

import itertools
from typing import Any

from autotune.records.script import ScriptContext

CHOICES: dict[str, list[Any]] = {
    "kind": ["messages", "prompt_completion", "text", "tokens"],
    "source": ["org/rows", "rows/*.parquet", "rows.jsonl", "train.py:Rows"],
    "eval_source": ["org/held_out", None, "held_out.jsonl", "my.data:held_out"],
    "streaming": [True, False],
    "model": ["hub", "folder", "config"],
    "lora": [True, False],
    "liger_layers": [True, False],
    "rows": ["packed rows", "packed examples", "padded"],
    "checkpointing": ["selective", "full", "none"],
    "compile": ["blocks", "auto", "parts", "never"],
    "float8": [True, False],
    "replicas": [2, 1],
    "head": ["chunked", "liger", "model"],
    "tracker": ["tensorboard", "mlflow", "wandb", "none"],
    "schedule": ["cosine_with_min_lr", "linear"],
    "schedule_steps": [1000, 0],
    "observed": [True, False],
}
CONFIG = {
    "model_type": "qwen3", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}, "tie_word_embeddings": False,
}  # fmt: skip
TAKEN = [
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
LEFT = [
    ("label smoothing", "not in this script"),
    ("order of the examples", "own seeded order"),
    ("callbacks, custom logging and evaluation", "they live in the observed script"),
]


def longest() -> dict[str, Any]:
    """The first value of every choice: what takes most lines."""
    return {name: values[0] for name, values in CHOICES.items()}


def pairwise() -> list[dict[str, Any]]:
    """Rows in which every pair of values of two choices occurs at least once."""
    names = list(CHOICES)
    missing = {
        (a, i, b, j)
        for a, b in itertools.combinations(range(len(names)), 2)
        for i in range(len(CHOICES[names[a]]))
        for j in range(len(CHOICES[names[b]]))
    }
    rows = []
    while missing:
        a, i, b, j = min(missing)
        row = {a: i, b: j}
        for place in (p for p in range(len(names)) if p not in row):
            found = {
                value: sum(
                    ((other, at, place, value) if other < place else (place, value, other, at)) in missing
                    for other, at in row.items()
                )
                for value in range(len(CHOICES[names[place]]))
            }
            row[place] = max(found, key=lambda value: found[value])
        missing -= {(p, row[p], q, row[q]) for p, q in itertools.combinations(range(len(names)), 2)}
        rows.append({name: CHOICES[name][row[place]] for place, name in enumerate(names)})
    return rows


def context_of(choice: dict[str, Any]) -> ScriptContext:
    """The context of one row; float8 gives way where blocks are not compiled."""
    model: dict[str, Any] = {"liger_layers": choice["liger_layers"], "tokenizer": "org/m"}
    if choice["model"] == "config":
        model |= {"config": CONFIG, "weights": "random"}
    else:
        model |= {"path": "org/m" if choice["model"] == "hub" else "/models/m"}
        model |= {"trust_remote_code": choice["model"] == "hub"}
    if choice["lora"]:
        model["lora"] = {"rank": 8, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj"]}
    hook = {"path": "rows", "split": "train", "limit": 1000}
    data = {"source": choice["source"], "kind": choice["kind"], "streaming": choice["streaming"]}
    data |= {"eval_source": choice["eval_source"], "hook_arguments": hook if ":" in choice["source"] else {}}
    by_rows = choice["rows"] == "packed rows"
    parts: dict[str, Any] = {
        "model": model,
        "data": data,
        "packing": {
            "requested": choice["rows"] != "padded",
            "verdict": "isolated",
            "reason": "qwen3 with softmax attention only",
        },
        "batch": {"rows_per_step": 64} if by_rows else {"examples_per_step": 64},
        "optimizer": {
            "schedule": choice["schedule"],
            "schedule_steps": choice["schedule_steps"],
            "max_steps": 10 if choice["streaming"] else 0,
        },
        "parallel": {"replicas": choice["replicas"]},
        "memory": {"checkpointing": choice["checkpointing"], "compile": choice["compile"]},
        "precision": {"float8": choice["float8"] and choice["compile"] in ("blocks", "auto")},
        "loss": {"head": choice["head"]},
        "run": {"tracker": choice["tracker"]},
    }
    if choice["observed"]:
        parts |= {
            "run_id": "20260101-120000-abcd",
            "observed_command": "torchrun --nproc-per-node 8 train.py --lr 2e-5",
            "taken_over": [{"what": w, "value": v, "source": s} for w, v, s in TAKEN],
            "not_taken_over": [{"what": w, "reason": r} for w, r in LEFT],
        }
    return ScriptContext.model_validate(parts)
