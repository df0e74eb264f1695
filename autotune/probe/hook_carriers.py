"""Objects that carry a job's settings (TrainingArguments, SFTConfig, Accelerator, Lightning Trainer)."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from . import finder, origins, sites
from .core import core
from .wrapping import observe

_filled_from: dict[str, Any] = {}  # while a parser builds a carrier: where its fields come from
_CONFIG_KEY = re.compile(r"^\s*[\"']?([A-Za-z_][\w.-]*)[\"']?\s*:")
_RANKING = ("plain", "accelerate", "deepspeed", "lightning", "transformers", "trl")
_kind = "plain"


def install_all() -> None:
    """Import hooks on every carrier; sites only in full mode, the trainer's kind always."""
    finder.when_imported("transformers.training_args", _training_arguments)
    finder.when_imported("transformers.trainer", _trainer)
    finder.when_imported("transformers.hf_argparser", _parser)
    finder.when_imported("trl.scripts.utils", _trl_parser)
    finder.when_imported("accelerate.accelerator", _accelerator)
    finder.when_imported("deepspeed", _deepspeed)
    for name in ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"):
        finder.when_imported(name, _lightning)


def trainer_kind(kind: str, carrier: str | None = None) -> None:
    """Report who drives the loop; the more specific answer stays."""
    global _kind
    if _RANKING.index(kind) >= _RANKING.index(_kind):
        _kind = kind
        core.emit("trainer", {"trainer_kind": kind, "carrier": carrier})


def _training_arguments(module: Any) -> None:
    # the dataclass __init__ of a subclass (SFTConfig) does not call this one, __post_init__ is shared
    observe(module.TrainingArguments, "__post_init__", before=_carrier)


def _carrier(original: Any, args: Any, kwargs: Any) -> None:
    arguments = args[0]
    kind = type(arguments)
    callee = f"{kind.__module__}.{kind.__qualname__}"
    fields = {name: getattr(arguments, name, None) for name in getattr(kind, "__dataclass_fields__", {})}
    schedule: dict[str, Any] = {}
    if isinstance(fields.get("num_train_epochs"), (int, float)):
        schedule["epochs_planned"] = float(fields["num_train_epochs"])
    if isinstance(fields.get("max_steps"), int) and fields["max_steps"] > 0:
        schedule["max_steps_planned"] = fields["max_steps"]
    core.emit("schedule", schedule)
    core.emit("trainer", {"carrier": kind.__qualname__})
    if not core.settings.full:
        return
    detail: dict[str, Any] = {}
    for name in _WORTH:
        if name in fields:
            value = fields[name]
            simple = value is None or isinstance(value, (bool, int, float))
            detail[f"field.{name}"] = value if simple else origins.short(value, name)
    if _filled_from:
        detail["filled_by"] = _filled_from["by"]
        for name in sorted(_filled_from.get("cli", ())):
            if name in fields:
                detail[f"origin.{name}"] = "cli"
        for name in sorted(_filled_from.get("config", ())):
            if name in fields:
                detail.setdefault(f"origin.{name}", "config")
        if _filled_from.get("file"):
            detail["config_file"] = _filled_from["file"]
    if sites.record("carrier", callee, kind.__init__, detail=detail, values=fields) is None:
        sites.record_library("carrier", callee, detail)  # a console script such as `trl sft`


_WORTH = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs", "max_steps",
    "dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers",
    "dataloader_prefetch_factor", "dataloader_drop_last", "group_by_length", "train_sampling_strategy",
    "gradient_checkpointing", "bf16", "fp16", "tf32", "optim", "torch_compile", "logging_steps",
    "logging_strategy", "logging_nan_inf_filter", "save_strategy", "save_steps", "eval_strategy",
    "eval_steps",
    "use_liger_kernel", "torch_empty_cache_steps", "max_grad_norm", "packing", "packing_strategy",
    "padding_free", "max_length", "max_seq_length", "pad_to_multiple_of", "include_num_input_tokens_seen",
    "ddp_find_unused_parameters", "average_tokens_across_devices", "attn_implementation", "seed",
    "lr_scheduler_type", "warmup_steps", "warmup_ratio", "assistant_only_loss", "completion_only_loss",
    "dataset_text_field", "formatting_func", "precompute_ref_log_probs", "sync_ref_model",
)  # fmt: skip


def _trainer(module: Any) -> None:
    observe(module.Trainer, "__init__", before=_trainer_made)
    observe(module.Trainer, "train", before=_trains)


def _trainer_made(original: Any, args: Any, kwargs: Any) -> None:
    if core.settings.full:
        kind = type(args[0])
        callee = f"{kind.__module__}.{kind.__qualname__}"
        sites.record("trainer_create", callee, kind.__init__, args[1:], kwargs)
        from . import recipe

        for value in (*args[1:], *kwargs.values()):
            recipe.saw_tokenizer(value)


def _trains(original: Any, args: Any, kwargs: Any) -> None:
    trainer = args[0]
    homes = {kind.__module__.split(".")[0] for kind in type(trainer).__mro__}
    carrier = type(getattr(trainer, "args", None)).__name__
    trainer_kind("trl" if "trl" in homes else "transformers", carrier)


def _parser(module: Any) -> None:
    parser = module.HfArgumentParser
    for name in ("parse_args_into_dataclasses", "parse_json_file", "parse_yaml_file", "parse_dict"):
        if hasattr(parser, name):
            observe(parser, name, before=_filling(name), after=_filled, failed=_filled_from.clear)


def _trl_parser(module: Any) -> None:
    if hasattr(module, "TrlParser"):
        observe(
            module.TrlParser,
            "parse_args_and_config",
            before=_filling("parse_args_and_config"),
            after=_filled,
            failed=_filled_from.clear,
        )


def _filling(name: str) -> Any:
    def before(original: Any, args: Any, kwargs: Any) -> None:
        if _filled_from and name != "parse_args_and_config":
            return  # the outer parser knows more
        _filled_from.clear()
        words = kwargs.get("args") or (
            args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else None
        )
        words = list(words) if words is not None else sys.argv[1:]
        _filled_from.update({"by": name, "cli": set(), "config": set(), "file": None})
        if name in ("parse_json_file", "parse_yaml_file"):
            file = args[1] if len(args) > 1 else next(iter(kwargs.values()), None)
            _take_config(str(file))
            return
        if name == "parse_dict":
            return
        for position, word in enumerate(words):
            if not word.startswith("--"):
                continue
            option, _, value = word[2:].partition("=")
            _filled_from["cli"].add(option.replace("-", "_").removeprefix("no_"))
            if option == "config":
                _take_config(value or (words[position + 1] if position + 1 < len(words) else ""))

    return before


def _filled(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    if _filled_from.get("by") == original.__name__:
        _filled_from.clear()


def _take_config(path: str) -> None:
    """Top-level keys of a flat YAML or JSON file: enough to say which field came from it."""
    try:
        with open(path, encoding="utf-8") as file:
            keys = {match.group(1).replace("-", "_") for line in file if (match := _CONFIG_KEY.match(line))}
    except OSError:
        return
    _filled_from["file"] = os.path.abspath(path)
    _filled_from["config"] = keys


def _accelerator(module: Any) -> None:
    observe(module.Accelerator, "__init__", before=_accelerator_made)
    if core.settings.full:
        observe(module.Accelerator, "prepare", before=_prepared)


def _accelerator_made(original: Any, args: Any, kwargs: Any) -> None:
    trainer_kind("accelerate", "Accelerator" if _kind in ("plain", "accelerate") else None)
    if core.settings.full:
        sites.record("carrier", "accelerate.Accelerator", original, args[1:], kwargs, only="direct")


def _prepared(original: Any, args: Any, kwargs: Any) -> None:
    sites.record("shard", "accelerate.Accelerator.prepare", original, args[1:], kwargs, only="direct")


def _deepspeed(module: Any) -> None:
    def before(original: Any, args: Any, kwargs: Any) -> None:
        trainer_kind("deepspeed")
        if core.settings.full:
            sites.record("shard", "deepspeed.initialize", original, args, kwargs)

    observe(module, "initialize", before=before)


def _lightning(module: Any) -> None:
    def made(original: Any, args: Any, kwargs: Any) -> None:
        trainer = args[0]
        if core.settings.full:
            kind = type(trainer)
            sites.record("carrier", f"{kind.__module__}.{kind.__qualname__}", original, args[1:], kwargs)

    def fits(original: Any, args: Any, kwargs: Any) -> None:
        trainer_kind("lightning", "Trainer")

    observe(module.Trainer, "__init__", before=made)
    observe(module.Trainer, "fit", before=fits)
