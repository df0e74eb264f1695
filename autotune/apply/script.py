"""Render the FSDP2 training script: one context in, one compiled and tidy Python source out."""

from __future__ import annotations

import pprint
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import InputError
from autotune.records.script import DataContext, PackingContext, ScriptContext, source_type

WIDTH = 120
TEMPLATE = "fsdp2/train.py.j2"


def render_script(context: ScriptContext, templates_dir: Path) -> str:
    """The source of the script; raises `InputError` when the context asks for what cannot be rendered."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

    environment = Environment(
        loader=FileSystemLoader(templates_dir),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    try:
        source = environment.get_template(TEMPLATE).render(template_values(context))
    except TemplateError as error:
        raise InputError(
            f"the template does not render: {error}", where=str(templates_dir / TEMPLATE)
        ) from error
    source = tidy(source)
    try:
        compile(source, context.file_name, "exec")
    except SyntaxError as error:
        raise InputError(
            f"the rendered script is not valid Python: {error.msg} in line {error.lineno}",
            where=str(templates_dir / TEMPLATE),
        ) from error
    return source


def packing_decision(
    table: Mapping[str, Any], model_type: str, layers: str, packing: PackingContext | None = None
) -> PackingContext:
    """Fill `verdict` and `reason` from the packing-isolation table.

    `layers` is how the family's recurrent and convolution layers run in the job: `fast` (kernels), `fallback`
    (torch), `dense` (the family has none) or `unknown`. What the table does not know stays `unknown`.
    """
    packing = packing or PackingContext()
    family = table.get("families", {}).get(model_type)
    if family is None:
        return packing.model_copy(
            update={"verdict": "unknown", "reason": f"the isolation table has no family {model_type}"}
        )
    if "dense" in family:
        layers = "dense"
    column = family.get(layers) or {}
    arguments = set(packing.boundary_arguments)
    known = {
        "pos": {"position_ids"},
        "seq_idx": {"position_ids", "seq_idx"},
        "cu": {"position_ids", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"},
    }
    everything = known["seq_idx"] | known["cu"]
    if "any" in column:
        verdict, passed = column["any"], "any arguments"
    elif (
        "all_plus_cu_seqlens" in column
        and everything <= arguments | {"cu_seqlens"}
        and column["all"] != "isolated"
    ):
        packing = packing.model_copy(
            update={"boundary_arguments": [*packing.boundary_arguments, *({"cu_seqlens"} - arguments)]}
        )
        verdict, passed = column["all_plus_cu_seqlens"], "all boundary arguments and cu_seqlens"
    elif everything <= arguments:
        verdict, passed = column.get("all", "unknown"), "all boundary arguments"
    else:
        name = next((name for name, needed in known.items() if needed == arguments), None)
        verdict, passed = column.get(name, "unknown"), ", ".join(sorted(arguments)) or "no arguments"
    words = {"fast": "its fast kernels", "fallback": "the torch fallback", "dense": "attention layers only"}
    how = words.get(layers, "an unknown layer implementation")
    reason = f"{model_type} with {how} and {passed}: {verdict} (isolation table, evidence: {family.get('evidence')})"
    return packing.model_copy(update={"verdict": verdict, "reason": reason})


def template_values(context: ScriptContext) -> dict[str, Any]:
    """What the template sees: decisions as names, texts already wrapped, values as Python source."""
    model, data, loss = context.model, context.data, context.loss
    kinds = {source_type(source) for source in (data.source, data.eval_source) if source}
    packed = context.packing.packs
    if data.streaming and not context.optimizer.max_steps:
        raise InputError("a streamed data set has no known length", hint="set optimizer.max_steps")
    if context.precision.float8 and not context.memory.compile_blocks:
        raise InputError(
            "float8 is slower than bfloat16 without compilation", hint="set memory.compile_blocks"
        )
    if data.kind != "tokens" and not (model.tokenizer or model.path):
        raise InputError("rows of text need a tokenizer", hint="set model.tokenizer or model.path")
    return {
        "title": context.title,
        "model_name": model.path or f"a {(model.config or {})['model_type']} model",
        "processes": context.processes,
        "file_name": context.file_name,
        "header": header(context),
        "packed": packed,
        "by_examples": bool(context.batch.examples_per_step) or not packed,
        "boundaries": source_of(context.packing.boundary_arguments, 13),
        "reads": {kind: kind in kinds for kind in ("hook", "jsonl", "datasets")},
        "data": data,
        "eval_source": data.eval_source,
        "streaming": data.streaming,
        "hook_arguments": source_of(data.hook_arguments, 17),
        "eval_hook_arguments": source_of(data.eval_hook_arguments, 22),
        "has_tokenizer": data.kind != "tokens" or bool(model.tokenizer),
        "model_config": None if model.config is None else source_of(model.config, 15),
        "pretrained": model.weights == "pretrained",
        "trust_remote_code": model.trust_remote_code,
        "lora": model.lora is not None,
        "liger_layers": model.liger_layers,
        "loss_head": loss.head,
        "checkpointing": context.memory.checkpointing,
        "compile_blocks": context.memory.compile_blocks,
        "float8": context.precision.float8,
        "tracker": context.run.tracker,
        "tracker_start": tracker_lines(context.run.tracker)[0],
        "tracker_write": tracker_lines(context.run.tracker)[1],
        "extra_imports": extra_imports(context),
        "cache_fields": source_of(" ".join(cache_fields(context)), 0),
        "options": option_lines(context),
    }


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
    """Options that change what is in the token cache."""
    data = context.data
    fields = ["max_length", "long_examples", "shuffle_window", *text_columns(data)]
    fields += ["row_tokens"] if context.packing.packs else []
    fields += ["supervise"] if data.kind == "messages" else []
    fields += ["append_eos"] if data.kind in ("text", "prompt_completion") else []
    fields += (
        ["split"] if "datasets" in {source_type(s) for s in (data.source, data.eval_source) if s} else []
    )
    return fields


def option_groups(context: ScriptContext) -> list[tuple[str, dict[str, Any]]]:
    """The script's options by topic; those that would have no effect in this script are left out."""
    c, packed, lora = context, context.packing.packs, context.model.lora
    read_by = {source_type(source) for source in (c.data.source, c.data.eval_source) if source}
    tokenizer = c.model.tokenizer or c.model.path or ""
    by_examples = c.batch.examples_per_step or not packed
    examples = c.batch.examples_per_step or c.batch.rows_per_step * c.batch.rows_per_micro_batch

    def when(condition: object, **options: Any) -> dict[str, Any]:
        return options if condition else {}

    groups: list[tuple[str, dict[str, Any]]] = [
        (
            "model and data",
            when(c.model.path, model=c.model.path, revision=c.model.revision or "")
            | when(c.data.kind != "tokens" or c.model.tokenizer, tokenizer=tokenizer)
            | {"data": c.data.source}
            | when(c.data.eval_source, eval_data=c.data.eval_source)
            | when("datasets" in read_by, split=c.data.split)
            | text_columns(c.data)
            | when(c.data.kind == "messages", supervise=c.data.supervise)
            | when(c.data.kind in ("text", "prompt_completion"), append_eos=c.data.append_eos)
            | {"shuffle": c.data.shuffle, "shuffle_window": c.data.shuffle_window, "cache_dir": c.data.cache_dir},
        ),
        (
            "rows: max_length 0 is no limit but the row; long_examples refuse, split or truncate",
            {"max_length": c.data.max_length, "long_examples": c.data.long_examples}
            | when(packed, row_tokens=c.packing.row_tokens, fixed_rows=c.packing.fixed_rows)
            | {"pad_multiple": c.batch.pad_multiple}
            | when(not packed, rows_per_micro_batch=c.batch.rows_per_micro_batch),
        ),
        (
            "one optimizer step, all ranks together; max_steps 0 is all epochs",
            when(by_examples, examples_per_step=examples)
            | when(not by_examples, rows_per_step=c.batch.rows_per_step)
            | {"drop_last": c.batch.drop_last}
            | when(not c.data.streaming, epochs=float(c.optimizer.epochs))
            | {"max_steps": c.optimizer.max_steps},
        ),
        (
            "AdamW; schedule constant, linear or cosine; warmup_ratio counts when warmup_steps is 0",
            {
                "learning_rate": c.optimizer.learning_rate,
                "schedule": c.optimizer.schedule,
                "warmup_steps": c.optimizer.warmup_steps,
                "warmup_ratio": float(c.optimizer.warmup_ratio),
                "min_lr_ratio": float(c.optimizer.min_lr_ratio),
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
            "dtypes: forward and backward, trained parameters and AdamW states, gradients between ranks",
            {
                "compute_dtype": c.precision.compute,
                "master_dtype": c.precision.master,
                "reduce_dtype": c.precision.reduce,
                "tf32": c.precision.tf32,
            },
        ),
        (
            "speed for memory; attention auto: flash-attn if installed, else varlen; or a name transformers knows",
            {"attention": c.loss.attention}
            | when(c.loss.head == "chunked", chunk_elements=1 << 28)
            | when(c.memory.checkpointing != "none", checkpoint_every=c.memory.checkpoint_every)
            | {
                "replicas": c.parallel.replicas,
                "reshard_after_forward": c.parallel.reshard_after_forward,
                "prefetch_blocks": c.parallel.prefetch_blocks,
                "accumulate_unsharded": c.parallel.accumulate_unsharded,
            },
        ),
    ]
    if lora:
        targets = lora.target_modules if isinstance(lora.target_modules, str) else ",".join(lora.target_modules)
        sizes = {"lora_rank": lora.rank, "lora_alpha": float(lora.alpha), "lora_dropout": float(lora.dropout)}
        groups.append(("adapters", {**sizes, "lora_targets": targets}))
    run = c.run
    results = {"output_dir": run.output_dir, "resume": True, "export": run.export, "seed": run.seed}
    results |= {"log_every": run.log_every, "save_every": run.save_every, "keep_checkpoints": run.keep_checkpoints}
    results |= when(c.data.eval_source, eval_every=run.eval_every) | {"peak_tflops": float(run.peak_tflops)}
    results |= when(run.tracker in ("wandb", "mlflow"), project=run.project)
    groups.append(("results; every number of steps counts optimizer steps; peak_tflops (dense, one device) turns TFLOPS into MFU", results))
    return groups


def option_lines(context: ScriptContext) -> list[str]:
    """The options as lines of a `dict(...)` call, several to a line."""
    lines = []
    for topic, options in option_groups(context):
        text = ", ".join(f"{name}={source_of(value, 0)}" for name, value in options.items()) + ","
        lines += [f"    # {topic}", *_wrap(text)]
    return lines


def _wrap(text: str) -> list[str]:
    pieces, lines = re.split(r"(?<=,) (?=\w+=)", text), ["   "]
    for piece in pieces:
        if len(lines[-1]) + 1 + len(piece) > WIDTH and lines[-1].strip():
            lines.append("   ")
        lines[-1] += " " + piece
    return lines


def extra_imports(context: ScriptContext) -> list[str]:
    """The imports that only some scripts need, in the order of a formatter."""
    c, packed = context, context.packing.packs
    read_by = {source_type(source) for source in (c.data.source, c.data.eval_source) if source}
    checkpointing = {
        "none": "",
        "full": "from torch.utils.checkpoint import checkpoint",
        "selective": "from torch.utils.checkpoint import CheckpointPolicy, checkpoint, "
        "create_selective_checkpoint_contexts",
    }[c.memory.checkpointing]
    tracker = {
        "none": "",
        "wandb": "import wandb",
        "mlflow": "import mlflow",
        "tensorboard": "from torch.utils.tensorboard import SummaryWriter",
    }[c.run.tracker]
    pretrained = c.model.weights == "pretrained"
    wanted = [
        (c.run.tracker in ("wandb", "mlflow"), tracker),
        ("datasets" in read_by, "from datasets import load_dataset"),
        (pretrained, "from huggingface_hub import snapshot_download"),
        (
            c.loss.head == "liger",
            "from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy",
        ),
        (c.model.liger_layers, "from liger_kernel.transformers.monkey_patch import _apply_liger_kernel"),
        (c.model.lora, "from peft import LoraConfig"),
        (pretrained, "from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader"),
        (c.model.lora, "from torch.distributed.tensor import distribute_tensor"),
        (packed, "from torch.nn.attention.varlen import varlen_attn"),
        (checkpointing, checkpointing),
        (c.run.tracker == "tensorboard", tracker),
        (c.precision.float8, "from torchao.float8 import convert_to_float8_training"),
        (pretrained, "from transformers.conversion_mapping import get_checkpoint_conversion_mapping"),
    ]
    return [line for condition, line in wanted if condition]


def tracker_lines(tracker: str) -> tuple[list[str], list[str]]:
    """Lines that start a tracker, and lines that write one record."""
    start = {
        "none": [],
        "wandb": ["self.tracker = wandb.init(project=cfg.project, config=vars(cfg)) if rank == 0 else None"],
        "mlflow": ["if rank == 0:", "    mlflow.set_experiment(cfg.project)", "    mlflow.log_params(vars(cfg))"],
        "tensorboard": [
            'self.tracker = SummaryWriter(Path(cfg.output_dir) / "tensorboard") if rank == 0 else None'
        ],
    }
    write = {
        "none": [],
        "wandb": ['self.tracker.log(record, step=record["step"])'],
        "mlflow": ['mlflow.log_metrics(record, step=record["step"])'],
        "tensorboard": [
            "for key, value in record.items():",
            '    self.tracker.add_scalar(key, value, record["step"])',
        ],
    }
    return start[tracker], write[tracker]


def header(context: ScriptContext) -> list[str]:
    """The lines that say what comes from the observed job, what does not, and whether rows are packed."""
    paragraphs = []
    if context.run_id:
        command = f": {context.observed_command}" if context.observed_command else ""
        paragraphs.append(f"Filled from run {context.run_id}{command}")
    taken = "; ".join(f"{item.what} {item.value} ({item.source})" for item in context.taken_over)
    paragraphs.append(
        f"Taken over: {taken or 'nothing was observed, all values were given by hand or are defaults'}."
    )
    not_taken = "; ".join(f"{item.what} ({item.reason})" for item in context.not_taken_over)
    paragraphs.append(f"Not taken over: {not_taken or 'nothing known'}.")
    if context.packing.packs:
        paragraphs.append(
            f"Rows are packed: {context.packing.reason}. The script tests it again when it starts."
        )
    elif context.packing.requested:
        paragraphs.append(f"Rows are not packed, one example a row: {context.packing.reason}.")
    else:
        paragraphs.append("Rows are not packed, one example a row, as asked for.")
    text = [
        line
        for paragraph in paragraphs
        for line in textwrap.wrap(paragraph, WIDTH, subsequent_indent="  ", break_long_words=False)
    ]
    return [line.replace("\\", "\\\\").replace('"""', "'''") for line in text]


def source_of(value: Any, indent: int) -> str:
    """A plain value as Python source in the style of the script: double quotes, wrapped at the line width."""
    if isinstance(value, str):
        return _double_quoted(repr(value))
    text = pprint.pformat(value, width=WIDTH - indent, compact=True, sort_dicts=False)
    return _double_quoted(text)


def _double_quoted(text: str) -> str:
    """Turn the single-quoted strings of a `repr` into double-quoted ones where that needs no escapes."""
    return re.sub(r"'([^'\"\\\n]*)'", r'"\1"', text)


def tidy(source: str) -> str:
    """No trailing blanks, at most two empty lines, exactly one newline at the end."""
    source = re.sub(r"[ \t]+\n", "\n", source)
    return re.sub(r"\n{4,}", "\n\n\n", source).rstrip("\n") + "\n"
