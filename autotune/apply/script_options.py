"""The options of the generated script: only those with an effect, by topic, as lines of Python."""

from __future__ import annotations

import json
from typing import Any

from autotune.apply.compiles import compiled_part
from autotune.records.script import DataContext, ScriptContext, source_type

WIDTH = 120  # line length of the generated script


def option_groups(context: ScriptContext) -> list[tuple[str, dict[str, Any]]]:
    """The script's options by topic; those that would have no effect in this script are left out."""
    c, packed = context, context.packing.packs
    read_by = {source_type(source) for source in (c.data.source, c.data.eval_source) if source}
    tokenizer = c.model.tokenizer or c.model.path or ""
    by_examples = c.batch.examples_per_step or not packed
    compiled = compiled_part(c)[0]
    examples = c.batch.examples_per_step or c.batch.rows_per_step * c.batch.rows_per_micro_batch

    def when(condition: object, **options: Any) -> dict[str, Any]:
        return options if condition else {}

    groups: list[tuple[str, dict[str, Any]]] = [
        (
            "",
            when(c.model.path, model=c.model.path, revision=c.model.revision or "")
            | when(c.data.kind != "tokens" or c.model.tokenizer, tokenizer=tokenizer)
            | {"data": c.data.source}
            | when(c.data.eval_source, eval_data=c.data.eval_source)
            | when("hub" in read_by, split=c.data.split)
            | text_columns(c.data)
            | when(c.data.kind == "messages", supervise=c.data.supervise)
            | when(c.data.kind in ("text", "prompt_completion"), append_eos=c.data.append_eos)
            | {"shuffle": c.data.shuffle}
            | when(c.data.streaming or not by_examples, shuffle_window=c.data.shuffle_window)
            | when(c.data.streaming, cache_dir=c.data.cache_dir),
        ),
        (
            "max_length 0: the row; long_examples: refuse, split, truncate; max_steps 0: all epochs",
            {"max_length": c.data.max_length, "long_examples": c.data.long_examples}
            | when(packed, row_tokens=c.packing.row_tokens, fixed_rows=c.packing.fixed_rows)
            | {"pad_multiple": c.batch.pad_multiple}
            | when(not packed, rows_per_micro_batch=c.batch.rows_per_micro_batch)
            | when(by_examples, examples_per_step=examples)
            | when(not by_examples, rows_per_step=c.batch.rows_per_step)
            | {"drop_last": c.batch.drop_last}
            | when(not c.data.streaming, epochs=float(c.optimizer.epochs))
            | {"max_steps": c.optimizer.max_steps},
        ),
        (
            "AdamW; schedule: a name of transformers.get_scheduler; warmup_ratio counts if warmup_steps is 0",
            {
                "learning_rate": c.optimizer.learning_rate,
                "schedule": c.optimizer.schedule,
                "warmup_steps": c.optimizer.warmup_steps,
                "warmup_ratio": float(c.optimizer.warmup_ratio),
            }
            | when(not by_examples and c.optimizer.schedule_steps, schedule_steps=c.optimizer.schedule_steps)
            | when(c.optimizer.schedule == "cosine_with_min_lr", min_lr_ratio=float(c.optimizer.min_lr_ratio))
            | {
                "beta1": c.optimizer.beta1,
                "beta2": c.optimizer.beta2,
                "epsilon": c.optimizer.epsilon,
                "weight_decay": float(c.optimizer.weight_decay),
                "decay_vectors": c.optimizer.decay_vectors,
                "max_grad_norm": float(c.optimizer.max_grad_norm),
                "fused": c.optimizer.fused,
            },
        ),
        (
            "compile: blocks, parts (norms, MLPs), never; attention auto: flash-attn if there, else varlen",
            {
                "compute_dtype": c.precision.compute,
                "master_dtype": c.precision.master,
                "reduce_dtype": c.precision.reduce,
                "tf32": c.precision.tf32,
                "attention": c.loss.attention,
            }
            | when(compiled != "never", compile=compiled, compile_on=c.memory.compile_on)
            | when(c.loss.head == "chunked", chunk_elements=c.loss.chunk_elements)
            | when(c.memory.checkpointing != "none", checkpoint_every=c.memory.checkpoint_every)
            | when(c.parallel.replicas > 1, replicas=c.parallel.replicas)
            | {
                "reshard_after_forward": c.parallel.reshard_after_forward,
                "prefetch_blocks": c.parallel.prefetch_blocks,
                "accumulate_unsharded": c.parallel.accumulate_unsharded,
            },
        ),
    ]
    run = c.run
    results = {"output_dir": run.output_dir, "resume": True, "export": run.export, "seed": run.seed}
    results |= {
        "log_every": run.log_every,
        "save_every": run.save_every,
        "keep_checkpoints": run.keep_checkpoints,
    }
    results |= when(c.data.eval_source, eval_every=run.eval_every) | {"peak_tflops": float(run.peak_tflops)}
    results |= when(run.tracker in ("wandb", "mlflow"), project=run.project)
    groups.append(
        (
            "results; steps are optimizer steps; peak_tflops (dense, one device) turns TFLOPS into MFU",
            results,
        )
    )
    return groups


def option_lines(context: ScriptContext) -> list[str]:
    """The options as `dict(...)` calls, a few lines for a topic; a formatter leaves such lines alone."""
    lines: list[str] = []
    for topic, options in option_groups(context):
        lines += [f"# {topic}"] if topic else []
        row: list[str] = []
        for item in [f"{name}={source_of(value)}" for name, value in options.items()]:
            if row and len("OPTIONS |= dict()" + ", ".join([*row, item])) > WIDTH:
                lines.append(f"OPTIONS |= dict({', '.join(row)})")
                row = []
            row.append(item)
        lines.append(f"OPTIONS |= dict({', '.join(row)})")
    first = next(i for i, line in enumerate(lines) if line.startswith("OPTIONS"))
    lines[first] = lines[first].replace("|=", "=", 1)
    return lines


def text_columns(data: DataContext) -> dict[str, str]:
    """The column options that this kind of row needs."""
    names = {
        "messages": ["messages_column"],
        "prompt_completion": ["prompt_column", "completion_column"],
        "text": ["text_column"],
        "tokens": [],
    }[data.kind]
    return {name: getattr(data, name) for name in names}


def cache_fields(context: ScriptContext) -> list[str]:
    """Lines that put the options which change the tokens into the cache key."""
    data = context.data
    fields = ["max_length", "long_examples", "shuffle_window", *text_columns(data)]
    fields += ["row_tokens"] if context.packing.packs else []
    fields += ["supervise"] if data.kind == "messages" else []
    fields += ["append_eos"] if data.kind in ("text", "prompt_completion") else []
    fields += ["split"] if "hub" in {source_type(s) for s in (data.source, data.eval_source) if s} else []
    names = [f"cfg.{name}" for name in fields]
    return [f"key += [{', '.join(names[i : i + 5])}]" for i in range(0, len(names), 5)]


def assigned(name: str, value: dict[str, Any]) -> list[str]:
    """`name = {...}` as lines within the width, further items with `|=`; a formatter leaves them alone."""
    lines: list[str] = []
    row: list[str] = []

    def flush() -> None:
        lines.append(f"{name} {'|=' if lines else '='} {{{', '.join(row)}}}")
        row.clear()

    for key, item in value.items():
        text = f"{source_of(key)}: {source_of(item)}"
        if len(f"{name} |= {{{text}}}") > WIDTH:
            if row:
                flush()
            exploded = "\n".join(f"    {line}" for line in _exploded(item).split("\n"))
            lines.append(
                f"{name} {'|=' if lines else '='} {{\n    {source_of(key)}: {exploded.lstrip()},\n}}"
            )
            continue
        if row and len(f"{name} |= {{{', '.join([*row, text])}}}") > WIDTH:
            flush()
        row.append(text)
    if row or not lines:
        flush()
    return lines


def source_of(value: Any) -> str:
    """A plain value as Python source on one line; a long list that repeats itself is multiplied."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False) if value.count('"') <= value.count("'") else repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{source_of(key)}: {source_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        size, items = len(value), list(value)
        period = next(n for n in range(1, size + 1) if items == (items[:n] * size)[:size]) if size else 0
        if size > 8 and size % period == 0 and size // period > 1:
            return f"{source_of(items[:period])} * {size // period}"
        return "[" + ", ".join(map(source_of, items)) + "]"
    return repr(value)


def _exploded(value: Any) -> str:
    """A value as a formatter writes it when it is too long for one line."""
    if isinstance(value, dict):
        items = [f"{source_of(key)}: {source_of(item)}" for key, item in value.items()]
        return "{\n" + "".join(f"    {item},\n" for item in items) + "}"
    if isinstance(value, list):
        return "[\n" + "".join(f"    {source_of(item)},\n" for item in value) + "]"
    return source_of(value)
