"""A whole FSDP2 training script filled from what a run saw."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autotune.errors import InputError
from autotune.optimize.patched import observation_of
from autotune.optimize.script_data import data_of
from autotune.optimize.script_notes import Notes
from autotune.optimize.script_settings import lora_of, optimizer_settings, seed_of
from autotune.store import read_record

if TYPE_CHECKING:
    from autotune.records.facts import FactSheet
    from autotune.records.observation import Observation, RankObservation
    from autotune.records.recipe import RecipeRecord
    from autotune.records.script import (
        BatchContext,
        MemoryContext,
        ModelContext,
        PackingContext,
        PrecisionContext,
        ScriptContext,
    )


@dataclass(frozen=True)
class Filled:
    """A script that was filled from a run."""

    text: str
    launch: str
    missing: list[str]  # what a person must set before it trains as the job did


def script_of(run: Path, output: Path, template: str = "fsdp2", settings: Iterable[str] = ()) -> Filled:
    """The script of a run, with `part.field=value` settings over it; a tokenizer is copied beside `output`.

    Raises InputError when the run lacks what a script needs; the message names it.
    """
    from autotune.apply.data_source import refuse_unfit
    from autotune.apply.generate import with_settings
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
    notes, settings = Notes(), _with_kind(list(settings))
    context = _context(run, output, observation, lead, lead.recipe, facts, notes)
    if settings:
        for setting in settings:
            name, _, value = setting.partition("=")
            notes.take(name, value, "given by hand")
        notes.missing = [
            m for m in notes.missing if not any(f"--set {s.partition('=')[0]}=" in m for s in settings)
        ]
        parts = context.model_dump(exclude={"taken_over"}) | {"taken_over": notes.taken}
        context = with_settings(parts, settings)
        if any(setting.startswith("data.") for setting in settings):
            refuse_unfit(context.data)
    text = render_script(context, *template_place(template))
    launch = f"torchrun --nproc-per-node {max(1, observation.expected_ranks)} {shlex.quote(str(output))}"
    return Filled(text, launch, notes.missing)


def _with_kind(settings: list[str]) -> list[str]:
    """A data set that is named comes with the kind of its rows, or says it. Raises InputError."""
    from autotune.apply.data_source import seen_kind

    given = dict(setting.partition("=")[::2] for setting in settings)
    source = given.get("data.source")
    if not source or "data.kind" in given:
        return settings
    return [*settings, f"data.kind={seen_kind(source, '--set data.kind=KIND')}"]


def _context(
    run: Path,
    output: Path,
    observation: Observation,
    lead: RankObservation,
    recipe: RecipeRecord,
    facts: FactSheet,
    notes: Notes,
) -> ScriptContext:
    from autotune.records.script import (
        OptimizerContext,
        ParallelContext,
        RunContext,
        ScriptContext,
    )

    model = _model(run, output, recipe, lead, notes)
    data = data_of(observation, recipe, notes)
    optimizer = optimizer_settings(observation, recipe, notes)
    if observation.epochs_planned:
        optimizer["epochs"] = observation.epochs_planned
        notes.take("epochs", f"{observation.epochs_planned:g}", "the job's arguments")
    batch = _batch(facts, notes)
    packed_before = facts.value("packing.packed") is True
    by_steps = batch.examples_per_step or packed_before or not observation.epochs_planned
    if observation.max_steps_planned and by_steps:
        optimizer["max_steps"] = observation.max_steps_planned
        notes.take("number of steps", str(observation.max_steps_planned), "the job's arguments")
    elif observation.max_steps_planned:  # packed rows make another number of steps of the same epochs
        optimizer["schedule_steps"] = observation.max_steps_planned
        notes.leave("number of steps", "rows are packed by tokens; schedule and warm-up are stretched to fit")
    precision = _precision(lead, facts, notes)
    notes.leave("callbacks, custom logging and evaluation", "they live in the observed script")
    notes.leave("the observed script's own collator and loop", "the script has its own")
    return ScriptContext(
        title="LoRA fine-tuning" if model.lora else "Fine-tuning" if model.path else "Training",
        run_id=run.name,
        observed_command=shlex.join(observation.command),
        file_name=output.name,
        processes=max(1, observation.expected_ranks),
        taken_over=notes.taken,
        not_taken_over=notes.left,
        model=model,
        data=data,
        packing=_packing(lead, facts),
        batch=batch,
        optimizer=OptimizerContext(**optimizer),
        precision=precision,
        parallel=ParallelContext(),
        memory=_memory(facts),
        run=RunContext(
            output_dir=f"{output.stem}_output", log_every=1, **seed_of(observation, recipe, notes)
        ),
    )


def _model(
    run: Path,
    output: Path,
    recipe: RecipeRecord,
    lead: RankObservation,
    notes: Notes,
) -> ModelContext:
    from autotune.records.script import ModelContext

    if not recipe.model_path and not recipe.model_config_values:
        raise InputError(
            "the observed model is no transformers model, so the template cannot rebuild it",
            where=run.name,
            code="script-incomplete",
        )
    lora = None
    if recipe.adapter is not None:
        lora = lora_of(recipe.adapter, notes)
    elif lead.model is not None and lead.model.lora:
        notes.leave(
            "adapter settings", "adapters were seen that are not peft's; --set model.lora.rank=16 adds LoRA"
        )
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
        notes.take("tokenizer", recipe.tokenizer_class or "", f"copied to {target.name}")
    if recipe.model_path:
        notes.take("weights", recipe.model_path, "from_pretrained")
        family = lead.model.model_type if lead.model is not None else None
        return ModelContext(path=recipe.model_path, family=family, tokenizer=tokenizer, lora=lora)
    family = str((recipe.model_config_values or {}).get("model_type") or "")
    notes.take("model config", family, "the model the job built")
    notes.leave("the first weights", "random ones, as the job's, but drawn anew from the script's seed")
    drop = {
        "_name_or_path",
        "transformers_version",
        "architectures",
        "dtype",
        "torch_dtype",
        "_attn_implementation",
    }
    values = {n: v for n, v in (recipe.model_config_values or {}).items() if n not in drop}
    return ModelContext(config=values, weights="random", tokenizer=tokenizer, lora=lora)


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
        full = facts.value("packing.packed") is True
        row = -(-per_batch // 64) * 64 if full else 2 ** max(8, (per_batch - 1).bit_length())
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


def _batch(facts: FactSheet, notes: Notes) -> BatchContext:
    from autotune.records.script import BatchContext

    if (
        facts.value("packing.packed") is True
    ):  # what a row held, not how many rows there were, is the job's step
        micro, world = facts.value("data.accumulation_steps"), facts.value("run.world_size")
        if isinstance(micro, float) and isinstance(world, int):
            rows = max(1, round(micro * world))
            notes.take("rows per optimizer step", str(rows), "packed batches of the run, all ranks")
            return BatchContext(rows_per_step=rows)
    size, micro, world = (
        facts.value("data.batch_size"),
        facts.value("data.accumulation_steps"),
        facts.value("run.world_size"),
    )
    if isinstance(size, float) and isinstance(micro, float) and isinstance(world, int):
        examples = max(1, round(size * micro * world))
        notes.take("examples per optimizer step", str(examples), "batches of the run, all ranks")
        return BatchContext(examples_per_step=examples)
    return BatchContext()


def _precision(lead: RankObservation, facts: FactSheet, notes: Notes) -> PrecisionContext:
    from autotune.records.script import PrecisionContext

    if lead.environment.device_type == "cpu":
        return PrecisionContext(compute="float32", master="float32", reduce="float32")
    half = lead.model is not None and "bfloat16" in lead.model.parameter_dtypes
    used = [facts.value(f"precision.{name}_dtype") for name in ("autocast", "policy", "parameter")]
    seen = next((str(dtype) for dtype in used if dtype not in (None, "none")), "bf16")
    if seen in ("fp32", "fp16"):
        notes.leave(
            f"{seen} arithmetic", "bfloat16 over float32 weights; --compute-dtype float32 for the old one"
        )
    return PrecisionContext(master="bfloat16" if half else "float32")


def _memory(facts: FactSheet) -> MemoryContext:
    from autotune.records.script import MemoryContext

    on = facts.value("memory.checkpointing")
    without = facts.value("memory.peak_without_checkpointing_frac")
    needed = on is True and not (isinstance(without, float) and without < 0.85)
    return MemoryContext(checkpointing="full" if needed else "none")
