"""Optimizer, schedule, clipping, seed and adapters of a watched job, as settings of a generated script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from autotune.optimize.script_notes import Notes

if TYPE_CHECKING:
    from autotune.records.observation import Observation
    from autotune.records.recipe import AdapterRecipe, RecipeRecord, ScheduleRecipe
    from autotune.records.script import LoraContext

_ADAM = ("Adam", "AdamW")
_OPTIMIZER = {
    "lr": "learning_rate",
    "beta1": "beta1",
    "beta2": "beta2",
    "eps": "epsilon",
    "weight_decay": "weight_decay",
}
# Curves of transformers' schedules, by the name of the function that draws them.
_CURVES = {
    "_get_constant_lambda": "constant",
    "_get_constant_schedule_with_warmup_lr_lambda": "constant_with_warmup",
    "_get_linear_schedule_with_warmup_lr_lambda": "linear",
    "_get_cosine_schedule_with_warmup_lr_lambda": "cosine",
    "_get_cosine_with_hard_restarts_schedule_with_warmup_lr_lambda": "cosine_with_restarts",
    "_get_polynomial_decay_schedule_with_warmup_lr_lambda": "polynomial",
    "_get_inverse_sqrt_schedule_lr_lambda": "inverse_sqrt",
}
# Arguments of the curves that the script leaves at transformers' defaults.
_USUAL = {"num_cycles": (0.5, 1), "power": (1.0,), "lr_end": (1e-7,), "min_lr_rate": (0.0,)}


def carried(observation: Observation, name: str) -> str | int | float | bool | None:
    """A field of TrainingArguments or the like, as it was seen."""
    found = [s.detail.get(f"field.{name}") for s in observation.sites if s.kind == "carrier"]
    return next((value for value in found if value is not None), None)


def optimizer_settings(observation: Observation, recipe: RecipeRecord, notes: Notes) -> dict[str, Any]:
    """Arguments of OptimizerContext besides the number of steps."""
    seen = recipe.optimizer
    kind = str(seen.get("class_name") or "AdamW")
    out: dict[str, Any] = {}
    for odd in recipe.ignored:
        notes.leave(odd, "the script has one AdamW with one setting of each")
    if kind in _ADAM or "AdamW" in kind:
        for name, ours in _OPTIMIZER.items():
            value = seen.get(name)
            if isinstance(value, (int, float)):
                out[ours] = float(value)
                notes.take(ours.replace("_", " "), f"{value:g}", "the job's optimizer")
        if seen.get("decay_vectors") is False:
            out["decay_vectors"] = False
            notes.take("weight decay", "of matrices only", "the job's optimizer")
    if kind != "AdamW":
        rate = seen.get("lr")
        with_rate = (
            f" (learning rate {rate:g})" if isinstance(rate, float) and "learning_rate" not in out else ""
        )
        notes.leave(f"optimizer {kind}{with_rate}", "the script uses torch's AdamW")
    out |= schedule_of(observation, recipe, notes)
    clip = clipping_of(observation)
    out["max_grad_norm"] = clip if clip is not None else 0.0
    if clip:
        notes.take("gradient clipping", f"{clip:g}", "the job's clipping")
    return out


def schedule_of(observation: Observation, recipe: RecipeRecord, notes: Notes) -> dict[str, Any]:
    """Schedule and warm-up: the schedule object that was made, else what the training arguments say."""
    if recipe.schedules:
        return _made_schedule(observation, recipe.schedules, notes)
    named = re.search(r"'(\w+)'|^(\w+)$", str(carried(observation, "lr_scheduler_type") or ""))
    if named is None:
        notes.leave("learning-rate schedule", "none was seen; the script keeps the rate constant")
        return {"schedule": "constant"}
    out: dict[str, Any] = {"schedule": named.group(1) or named.group(2)}
    notes.take("learning-rate schedule", str(out["schedule"]), "the job's training arguments")
    steps, ratio = carried(observation, "warmup_steps"), carried(observation, "warmup_ratio")
    if isinstance(steps, (int, float)) and steps > 0:
        # newer versions of transformers take a share of all steps under this name
        out |= {"warmup_steps": int(steps)} if steps >= 1 else {"warmup_ratio": float(steps)}
    elif isinstance(ratio, (int, float)) and ratio > 0:
        out["warmup_ratio"] = float(ratio)
    for name in ("warmup_steps", "warmup_ratio"):
        if name in out:
            notes.take(name.replace("_", " "), f"{out[name]:g}", "the job's training arguments")
    return out


def _made_schedule(observation: Observation, schedules: list[ScheduleRecipe], notes: Notes) -> dict[str, Any]:
    last = schedules[-1]
    name = _CURVES.get(last.function or "")
    arguments = last.arguments
    if last.class_name == "CosineAnnealingLR" and not arguments.get("eta_min"):
        name = "cosine"
    odd = [k for k, usual in _USUAL.items() if k in arguments and arguments[k] not in usual]
    if len(schedules) > 1 or name is None or odd:
        what = f"{last.class_name} {last.function}" if last.function else last.class_name
        what += f" with {', '.join(f'{k} {arguments[k]}' for k in odd)}" if odd else ""
        why = "no name of transformers.get_scheduler; the script keeps the rate constant"
        notes.leave(f"learning-rate schedule ({what.strip()})", why)
        return {"schedule": "constant"}
    out: dict[str, Any] = {"schedule": name}
    source = "the job's schedule"
    notes.take("learning-rate schedule", name, source)
    warmup = arguments.get("num_warmup_steps")
    if isinstance(warmup, (int, float)) and warmup > 0:
        # accelerate's wrapper takes one step of the schedule for every rank
        out["warmup_steps"] = max(1, round(warmup / _steps_at_once(observation)))
        notes.take("warm-up steps", str(out["warmup_steps"]), source)
    return out


def _steps_at_once(observation: Observation) -> int:
    return max(1, observation.expected_ranks) if observation.trainer_kind == "accelerate" else 1


def clipping_of(observation: Observation) -> float | None:
    """The largest allowed gradient norm; None or 0 where nothing is clipped."""
    given = carried(observation, "max_grad_norm")
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return float(given)
    for site in observation.sites:
        if site.kind == "clip_grad":
            argument = site.arguments.get("max_norm")
            try:
                return float(argument.text) if argument is not None else None
            except ValueError:
                return None
    return None


def seed_of(observation: Observation, recipe: RecipeRecord, notes: Notes) -> dict[str, Any]:
    seed, source = carried(observation, "seed"), "the job's training arguments"
    if not isinstance(seed, int) or isinstance(seed, bool):
        seed, source = recipe.seed, "torch.manual_seed"
    if seed is None:
        return {}
    notes.take("seed", str(seed), source)
    return {"seed": seed}


def lora_of(adapter: AdapterRecipe, notes: Notes) -> LoraContext | None:
    """The adapter for the script; None where it is of another kind."""
    from autotune.records.script import LoraContext

    if adapter.rank is None or isinstance(adapter.target_modules, str):
        what = adapter.odd[0] if adapter.rank is None and adapter.odd else "target modules given as a pattern"
        notes.leave(
            f"adapters ({what})", "the script has plain LoRA of named modules; it trains all parameters"
        )
        return None
    for name in adapter.odd:
        notes.leave(f"adapter setting {name}", "the script has plain LoRA")
    notes.take("LoRA", f"rank {adapter.rank}, alpha {adapter.alpha:g}", "the job's adapter")
    return LoraContext(
        rank=adapter.rank,
        alpha=adapter.alpha,
        dropout=adapter.dropout,
        target_modules=adapter.target_modules,
    )
