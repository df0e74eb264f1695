"""A whole FSDP2 training script filled from what a run saw."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autotune.errors import InputError
from autotune.optimize.patched import observation_of
from autotune.store import read_record

if TYPE_CHECKING:
    from autotune.records.facts import FactSheet
    from autotune.records.observation import Observation, RankObservation
    from autotune.records.recipe import DatasetRecipe, RecipeRecord
    from autotune.records.script import (
        BatchContext,
        DataContext,
        MemoryContext,
        ModelContext,
        NotTakenOver,
        PackingContext,
        PrecisionContext,
        ScriptContext,
        TakenOver,
    )


def script_of(run: Path, output: Path, template: str = "fsdp2") -> tuple[str, str]:
    """The script's text and its launch command. A tokenizer made from a file is copied beside `output`.

    Raises InputError when the run lacks what a script needs; the message names it.
    """
    from autotune.apply.script import render_script, template_place
    from autotune.records.facts import FactSheet

    observation = observation_of(run)
    facts = read_record(run / "facts.json", FactSheet)
    lead = min(observation.ranks, key=lambda rank: rank.rank) if observation.ranks else None
    if lead is None or lead.recipe is None:
        raise InputError(
            "this run did not record what the job is made of",
            where=run.name,
            hint="watch it again: autotune analyze -- COMMAND",
            code="script-incomplete",
        )
    context = _context(run, output, observation, lead, lead.recipe, facts)
    text = render_script(context, *template_place(template))
    processes = max(1, observation.expected_ranks)
    return text, f"torchrun --nproc-per-node {processes} {shlex.quote(str(output))}"


def _context(
    run: Path,
    output: Path,
    observation: Observation,
    lead: RankObservation,
    recipe: RecipeRecord,
    facts: FactSheet,
) -> ScriptContext:
    from autotune.records.script import (
        OptimizerContext,
        ParallelContext,
        RunContext,
        ScriptContext,
    )

    taken: list[TakenOver] = []
    left: list[NotTakenOver] = []
    model = _model(run, output, recipe, lead, taken, left)
    data = _data(recipe, facts, taken, left)
    settings = {name: value for name, value in recipe.optimizer.items() if isinstance(value, (int, float))}
    names = {
        "lr": "learning_rate",
        "beta1": "beta1",
        "beta2": "beta2",
        "eps": "epsilon",
        "weight_decay": "weight_decay",
    }
    optimizer: dict[str, Any] = {names[n]: float(v) for n, v in settings.items() if n in names}
    for name, value in optimizer.items():
        _take(taken, name.replace("_", " "), f"{value:g}", "the job's optimizer")
    optimizer |= _schedule(observation, taken, left)
    clip = _clip(observation)
    optimizer["max_grad_norm"] = clip if clip is not None else 0.0
    if clip is not None:
        _take(taken, "gradient clipping", f"{clip:g}", "clip_grad_norm_")
    if observation.epochs_planned:
        optimizer["epochs"] = observation.epochs_planned
        _take(taken, "epochs", f"{observation.epochs_planned:g}", "the job's arguments")
    batch = _batch(facts, taken)
    if observation.max_steps_planned and (batch.examples_per_step or not observation.epochs_planned):
        optimizer["max_steps"] = observation.max_steps_planned
    elif observation.max_steps_planned:  # packed rows make another number of steps of the same epochs
        optimizer["schedule_steps"] = observation.max_steps_planned
        left.append(
            _left("number of steps", "rows are packed by tokens; schedule and warm-up are stretched to fit")
        )
    left += [
        _left("callbacks, custom logging and evaluation", "they live in the observed script"),
        _left("the observed script's own collator and loop", "the script has its own; see its header"),
    ]
    return ScriptContext(
        title=f"{recipe_title(recipe)}",
        run_id=run.name,
        observed_command=shlex.join(observation.command),
        file_name=output.name,
        processes=max(1, observation.expected_ranks),
        taken_over=taken,
        not_taken_over=left,
        model=model,
        data=data,
        packing=_packing(lead, facts),
        batch=batch,
        optimizer=OptimizerContext(**optimizer),
        precision=_precision(lead),
        parallel=ParallelContext(),
        memory=_memory(facts),
        run=RunContext(output_dir=f"{output.stem}_output", log_every=1, **_seed(observation, taken)),
    )


def _carried(observation: Observation, name: str) -> str | int | float | bool | None:
    """A field of TrainingArguments or the like, as it was seen."""
    found = [s.detail.get(f"field.{name}") for s in observation.sites if s.kind == "carrier"]
    return next((value for value in found if value is not None), None)


def _schedule(observation: Observation, taken: list[TakenOver], left: list[NotTakenOver]) -> dict[str, Any]:
    """Schedule and warm-up, where an object that was seen carries them."""
    named = re.search(r"'(\w+)'|^(\w+)$", str(_carried(observation, "lr_scheduler_type") or ""))
    if named is None:
        why = "not read from the run; the script keeps the rate constant"
        left.append(_left("learning-rate schedule", why))
        return {"schedule": "constant"}
    out: dict[str, Any] = {"schedule": named.group(1) or named.group(2)}
    _take(taken, "learning-rate schedule", str(out["schedule"]), "the job's training arguments")
    steps, ratio = _carried(observation, "warmup_steps"), _carried(observation, "warmup_ratio")
    if isinstance(steps, (int, float)) and steps > 0:
        # newer versions of transformers take a share of all steps under this name
        out |= {"warmup_steps": int(steps)} if steps >= 1 else {"warmup_ratio": float(steps)}
    elif isinstance(ratio, (int, float)) and ratio > 0:
        out["warmup_ratio"] = float(ratio)
    for name in ("warmup_steps", "warmup_ratio"):
        if name in out:
            _take(taken, name.replace("_", " "), f"{out[name]:g}", "the job's training arguments")
    return out


def _seed(observation: Observation, taken: list[TakenOver]) -> dict[str, Any]:
    seed = _carried(observation, "seed")
    if not isinstance(seed, int) or isinstance(seed, bool):
        return {}
    _take(taken, "seed", str(seed), "the job's training arguments")
    return {"seed": seed}


def recipe_title(recipe: RecipeRecord) -> str:
    """What the script is called: the model's family."""
    values = recipe.model_config_values or {}
    return str(values.get("model_type") or "Causal language model")


def _model(
    run: Path,
    output: Path,
    recipe: RecipeRecord,
    lead: RankObservation,
    taken: list[TakenOver],
    left: list[NotTakenOver],
) -> ModelContext:
    from autotune.records.script import ModelContext

    if not recipe.model_path and not recipe.model_config_values:
        raise InputError(
            "the observed model is no transformers model, so the template cannot rebuild it",
            where=run.name,
            code="script-incomplete",
        )
    if lead.model is not None and lead.model.lora:
        left.append(_left("adapter settings", "low-rank adapters were seen; set model.lora by hand"))
    tokenizer = recipe.tokenizer_path
    if tokenizer is None and recipe.tokenizer_saved:
        from autotune.analyze.watch import OBSERVE

        source = run / "launches" / OBSERVE / recipe.tokenizer_saved
        if not source.is_dir():
            raise InputError(
                "the tokenizer that was recorded with this run is not there any more",
                where=str(source),
                hint="watch it again: autotune analyze -- COMMAND",
                code="script-incomplete",
            )
        target = output.resolve().with_name(f"{output.stem}_tokenizer")
        shutil.copytree(source, target, dirs_exist_ok=True)
        tokenizer = str(target)
        _take(taken, "tokenizer", recipe.tokenizer_class or "", f"copied to {target.name}")
    if recipe.model_path:
        _take(taken, "weights", recipe.model_path, "from_pretrained")
        family = lead.model.model_type if lead.model is not None else None
        return ModelContext(path=recipe.model_path, family=family, tokenizer=tokenizer)
    _take(taken, "model config", recipe_title(recipe), "the model the job built")
    drop = {
        "_name_or_path",
        "transformers_version",
        "architectures",
        "dtype",
        "torch_dtype",
        "_attn_implementation",
    }
    values = {n: v for n, v in (recipe.model_config_values or {}).items() if n not in drop}
    return ModelContext(config=values, weights="random", tokenizer=tokenizer)


def _data(
    recipe: RecipeRecord, facts: FactSheet, taken: list[TakenOver], left: list[NotTakenOver]
) -> DataContext:
    from autotune.records.script import DataContext

    dataset = recipe.dataset
    problem = _hook_problem(dataset)
    if dataset is None or problem:
        left.append(_left("data set", f"{problem}; set data.source to a file or a hook"))
        return DataContext(source="data/train.jsonl", kind="tokens")
    hook = f"{dataset.file}:{dataset.class_name}"
    _take(taken, "data set", dataset.class_name, str(dataset.file))
    for name in dataset.unknown_arguments:
        left.append(_left(f"data set argument {name}", "its value cannot be written down"))
    arguments = dict(dataset.arguments)
    return DataContext(
        source=hook,
        kind="tokens",
        hook_arguments=arguments,
        tokenizer_argument=dataset.tokenizer_argument or "tokenizer",
    )


def _hook_problem(dataset: DatasetRecipe | None) -> str:
    if dataset is None:
        return "no data set class was seen"
    if dataset.file is None:
        return f"{dataset.class_name} comes from a library"
    if not dataset.guarded:
        return f"importing {Path(dataset.file).name} would start the training (no __main__ guard)"
    if "." in dataset.class_name:
        return f"{dataset.class_name} is defined inside a function"
    return ""


def _packing(lead: RankObservation, facts: FactSheet) -> PackingContext:
    """Whether the script may pack; rows hold what a micro-batch of the run held, and at least one example."""
    from autotune.apply.packing_gate import packing_decision
    from autotune.records.script import PackingContext

    longest = facts.value("data.max_length_seen")
    tokens = facts.value("data.useful_tokens_per_step")
    micro = facts.value("data.accumulation_steps")
    row = 8192
    if isinstance(tokens, float) and isinstance(micro, float) and micro:
        per_batch = round(tokens / max(1, lead.world_size) / micro)
        row = 2 ** max(8, per_batch.bit_length())
    if isinstance(longest, int):
        row = max(row, longest)
    on_gpu = lead.environment.device_type != "cpu"
    wanted = PackingContext(row_tokens=row, fixed_rows=on_gpu)
    model = lead.model
    if model is None or not model.model_type:
        return wanted
    special = [k for k in model.kernels if k.role in ("linear_attention", "causal_conv")]
    linear = facts.value("model.linear_attention_layers")
    implementation: Literal["fast", "fallback", "dense"] = "dense"
    if special or linear:
        implementation = "fast" if special and all(k.fast for k in special) else "fallback"
    version = lead.environment.packages.get("transformers")
    return packing_decision(model.model_type, implementation, version, wanted)


def _batch(facts: FactSheet, taken: list[TakenOver]) -> BatchContext:
    from autotune.records.script import BatchContext

    size, micro, world = (
        facts.value("data.batch_size"),
        facts.value("data.accumulation_steps"),
        facts.value("run.world_size"),
    )
    if isinstance(size, float) and isinstance(micro, float) and isinstance(world, int):
        examples = max(1, round(size * micro * world))
        _take(taken, "examples per optimizer step", str(examples), "batches of the run, all ranks")
        return BatchContext(examples_per_step=examples)
    return BatchContext()


def _precision(lead: RankObservation) -> PrecisionContext:
    from autotune.records.script import PrecisionContext

    if lead.environment.device_type == "cpu":
        return PrecisionContext(compute="float32", master="float32", reduce="float32")
    half = lead.model is not None and "bfloat16" in lead.model.parameter_dtypes
    return PrecisionContext(master="bfloat16" if half else "float32")


def _memory(facts: FactSheet) -> MemoryContext:
    from autotune.records.script import MemoryContext

    on = facts.value("memory.checkpointing")
    without = facts.value("memory.peak_without_checkpointing_frac")
    needed = on is True and not (isinstance(without, float) and without < 0.85)
    return MemoryContext(checkpointing="full" if needed else "none")


def _clip(observation: Observation) -> float | None:
    for site in observation.sites:
        if site.kind == "clip_grad":
            argument = site.arguments.get("max_norm")
            try:
                return float(argument.text) if argument is not None else None
            except ValueError:
                return None
    return None


def _take(taken: list[TakenOver], what: str, value: str, source: str) -> None:
    from autotune.records.script import TakenOver

    taken.append(TakenOver(what=what, value=value, source=source))


def _left(what: str, reason: str) -> NotTakenOver:
    from autotune.records.script import NotTakenOver

    return NotTakenOver(what=what, reason=reason)
