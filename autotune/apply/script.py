"""Render the FSDP2 training script: one context in, one compiled and tidy Python source out."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.apply.compiles import compiled_part
from autotune.apply.script_imports import package_imports, standard_imports, tokenizer_class
from autotune.apply.script_options import WIDTH, assigned, cache_fields, option_lines
from autotune.data import data_dir
from autotune.errors import InputError
from autotune.records.script import LoraContext, ScriptContext, source_type

TEMPLATE = "fsdp2/train.py.j2"


def template_place(name: str) -> tuple[Path, str]:
    """(folder, file) of a template: `fsdp2`, or the path of one's own. Raises InputError."""
    if name == "fsdp2":
        return data_dir("templates"), TEMPLATE
    path = Path(name)
    if not path.is_file():
        raise InputError("there is no such template", where=name, hint="fsdp2, or the path of a .j2 file")
    return path.resolve().parent, path.name


def render_script(context: ScriptContext, templates_dir: Path, template: str = TEMPLATE) -> str:
    """The source of the script; raises `InputError` when the context asks for what cannot be rendered.

    A template of one's own may include and extend the built-in ones (`fsdp2/train.py.j2`).
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

    environment = Environment(
        loader=FileSystemLoader([templates_dir, data_dir("templates")]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    try:
        source = environment.get_template(template).render(context=context, **template_values(context))
    except TemplateError as error:
        raise InputError(
            f"the template does not render: {error}",
            where=str(templates_dir / template),
            code="template-broken",
        ) from error
    source = tidy(source)
    try:
        compile(source, context.file_name, "exec")
    except SyntaxError as error:
        raise InputError(
            f"the rendered script is not valid Python: {error.msg} in line {error.lineno}",
            where=str(templates_dir / template),
            code="template-broken",
        ) from error
    return source


def template_values(context: ScriptContext) -> dict[str, Any]:
    """What the template sees: decisions as names, texts already wrapped, values as Python source."""
    model, data, loss = context.model, context.data, context.loss
    kinds = {source_type(source) for source in (data.source, data.eval_source) if source}
    packed, pretrained = context.packing.packs, model.weights == "pretrained"
    if data.streaming and not context.optimizer.max_steps:
        raise InputError(
            "a streamed data set has no known length",
            hint="--set optimizer.max_steps=N",
            code="script-incomplete",
        )
    if context.precision.float8 and compiled_part(context)[0] != "blocks":
        raise InputError(
            "float8 is slower than bfloat16 unless blocks are compiled",
            hint="--set memory.compile=blocks",
            code="script-incomplete",
        )
    if data.kind != "tokens" and not (model.tokenizer or model.path):
        raise InputError(
            "rows of text need a tokenizer",
            hint="--set model.tokenizer=PATH, a folder, a tokenizer.json or a hub id",
            code="script-incomplete",
        )
    return {
        "title": in_docstring(context.title),
        "model_name": in_docstring(model.path or f"a {(model.config or {})['model_type']} model"),
        "processes": context.processes,
        "file_name": in_docstring(context.file_name),
        "header": header(context),
        "packed": packed,
        "by_examples": bool(context.batch.examples_per_step) or not packed,
        "boundaries": boundary_lines(context.packing.boundary_arguments),
        "reads": {kind: kind in kinds for kind in ("hook", "jsonl", "parquet", "hub")},
        "data": data,
        "eval_source": data.eval_source,
        "streaming": data.streaming,
        "hook_arguments": assigned("HOOK", data.hook_arguments),
        "eval_hook_arguments": assigned("EVAL_HOOK", data.eval_hook_arguments),
        "tokenizer": tokenizer_source(context),
        "model_config": assigned("MODEL_CONFIG", without_cache(model.config))
        if model.config and not pretrained
        else [],
        "pretrained": pretrained,
        "trust_remote_code": model.trust_remote_code,
        "lora": None if model.lora is None else assigned("LORA", lora_arguments(model.lora)),
        "liger_layers": model.liger_layers,
        "loss_head": loss.head,
        "checkpointing": context.memory.checkpointing,
        "hybrid": context.parallel.replicas > 1,
        "min_lr": context.optimizer.schedule == "cosine_with_min_lr",
        "rescaled": rescaled(context),
        "compiled": compiled_part(context)[0] != "never",
        "float8": context.precision.float8,
        "tracker": context.run.tracker,
        "tracker_start": tracker_lines(context.run.tracker)[0],
        "tracker_write": tracker_lines(context.run.tracker)[1],
        "standard_imports": ", ".join(standard_imports(context)),
        "imports": package_imports(context),
        "cache_fields": cache_fields(context),
        "options": option_lines(context),
    }


def without_cache(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration and its parts without `use_cache: true`: training builds no cache."""
    kept = {name: value for name, value in config.items() if (name, value) != ("use_cache", True)}
    return {name: without_cache(v) if isinstance(v, Mapping) else v for name, v in kept.items()}


def rescaled(context: ScriptContext) -> bool:
    """Whether packing may change the number of steps, so that the schedule is stretched to it."""
    by_rows = context.packing.packs and not context.batch.examples_per_step
    return by_rows and bool(context.optimizer.schedule_steps)


def tokenizer_source(context: ScriptContext) -> str:
    """The expression that makes the tokenizer: from a folder, a hub id, a `tokenizer.json`, or none."""
    kind = tokenizer_class(context)
    if kind == "PreTrainedTokenizerFast":
        return "hf.PreTrainedTokenizerFast(tokenizer_file=cfg.tokenizer)"
    trust = ", trust_remote_code=True" if context.model.trust_remote_code else ""
    return f"hf.AutoTokenizer.from_pretrained(cfg.tokenizer{trust})" if kind else "None"


def boundary_lines(names: list[str]) -> list[str]:
    """Lines that return the boundary arguments which this family gets."""
    values = {
        "position_ids": "positions",
        "seq_idx": "segments",
        "max_length_q": "longest",
        "max_length_k": "longest",
    }
    items = [f'"{name}": {values.get(name, "ends")}' for name in names]
    if len(items) <= 4:
        return ["return {" + ", ".join(items) + "}"]
    return ["known = {" + ", ".join(items[:4]) + "}", "return known | {" + ", ".join(items[4:]) + "}"]


def lora_arguments(lora: LoraContext) -> dict[str, Any]:
    """Arguments of peft's `LoraConfig`."""
    sizes = {"r": lora.rank, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout}
    return {**sizes, "target_modules": lora.target_modules}


def tracker_lines(tracker: str) -> tuple[list[str], list[str]]:
    """Lines that start a tracker, and lines that write one record."""
    start = {
        "none": [],
        "wandb": ["self.tracker = wandb.init(project=cfg.project, config=vars(cfg)) if rank == 0 else None"],
        "mlflow": [
            "if rank == 0:",
            "    mlflow.set_experiment(cfg.project)",
            "    mlflow.log_params(vars(cfg))",
        ],
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
    if rescaled(context):
        paragraphs.append(
            "Changed: a step is packed rows, so there are more or fewer steps than the schedule's "
            f"{context.optimizer.schedule_steps}; schedule and warm-up are stretched to them."
        )
    part, why = compiled_part(context)
    if part != "never":
        what = {"blocks": "blocks and loss", "parts": "norms, MLPs and loss"}[part]
        where = "a GPU" if context.memory.compile_on == "cuda" else "the CPU"
        paragraphs.append(f"Compiled on {where}: {what} ({why}); --compile never switches it off.")
    text = [
        line
        for paragraph in paragraphs
        for line in textwrap.wrap(paragraph, WIDTH, subsequent_indent="  ", break_long_words=False)
    ]
    return [in_docstring(line) for line in text]


def in_docstring(text: str) -> str:
    """Text that stays itself inside a triple-quoted string."""
    return text.replace("\\", "\\\\").replace('"""', "'''")


def tidy(source: str) -> str:
    """No trailing blanks, at most two empty lines, exactly one newline at the end."""
    source = re.sub(r"[ \t]+\n", "\n", source)
    return re.sub(r"\n{4,}", "\n\n\n", source).rstrip("\n") + "\n"
