"""The rows of a watched job, as a source that a generated script can read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.apply.data_source import KINDS, guess_kind, kind_of_columns
from autotune.errors import InputError
from autotune.optimize.script_notes import Notes
from autotune.optimize.script_settings import carried

if TYPE_CHECKING:
    from autotune.records.observation import Observation
    from autotune.records.recipe import DatasetRecipe, LoadedRecipe, RecipeRecord
    from autotune.records.script import DataContext

PLACEHOLDER = "data/train.jsonl"


def data_of(observation: Observation, recipe: RecipeRecord, notes: Notes) -> DataContext:
    """The job's data set class as a hook, else what `load_dataset` read, else a file name to be filled in."""
    from autotune.records.script import DataContext

    dataset = recipe.dataset
    problem = _hook_problem(dataset)
    if dataset is not None and not problem:
        return _hook(dataset, notes)
    if recipe.loaded:
        values, why = _loaded(recipe.loaded)
        if values is not None:
            return _rows(values, observation, recipe, notes)
        problem = why
    notes.leave("data set", problem)
    notes.missing.append(
        f"the data set: {problem}; add --set data.source=FILE --set data.kind=KIND; kinds are {KINDS}"
    )
    return DataContext(source=PLACEHOLDER, kind="tokens")


def _hook(dataset: DatasetRecipe, notes: Notes) -> DataContext:
    from autotune.records.script import DataContext

    notes.take("data set", dataset.class_name, str(dataset.file))
    for name in dataset.unknown_arguments:
        notes.leave(f"data set argument {name}", "its value cannot be written down")
        notes.missing.append(
            f"argument {name} of {dataset.class_name}: add --set data.hook_arguments.{name}=VALUE"
        )
    return DataContext(
        source=f"{dataset.file}:{dataset.class_name}",
        kind=kind_of_columns(dataset.item_keys) or "tokens",
        hook_arguments=dict(dataset.arguments),
        tokenizer_argument=dataset.tokenizer_argument or "tokenizer",
    )


def _hook_problem(dataset: DatasetRecipe | None) -> str:
    if dataset is None:
        return "no data set class was seen"
    if dataset.file is None:
        return f"a {dataset.class_name} has no class of yours that could be called again"
    if not dataset.guarded:
        return f"importing {Path(dataset.file).name} would start the training (no __main__ guard)"
    if "." in dataset.class_name:
        return f"{dataset.class_name} is defined inside a function"
    if dataset.item_keys and kind_of_columns(dataset.item_keys) is None:
        return f"rows of {dataset.class_name} are {', '.join(dataset.item_keys)}"
    return ""


def _loaded(calls: list[LoadedRecipe]) -> tuple[dict[str, Any] | None, str]:
    """Settings of the script's data for what `load_dataset` read, or why there are none."""
    first = calls[0]
    others = {(c.path, c.name, tuple(c.files)) for c in calls}
    if len(others) > 1:
        return None, f"several data sets were loaded ({', '.join(dict.fromkeys(c.path for c in calls))})"
    kind = kind_of_columns(
        [
            name
            for name, dtype in first.columns.items()
            if name in ("messages", "input_ids") or dtype == "string"
        ]
    )
    if first.path in ("json", "parquet"):
        if len(first.files) != 1 or first.files == ["?"]:
            return None, f"{first.path} of several files"
        source = first.files[0]
        suffixes = (".jsonl", ".json") if first.path == "json" else (".parquet",)
        if "://" in source or not source.endswith(suffixes):
            return None, f"the script cannot read {source}"
        if first.path == "json":
            try:
                kind = guess_kind(source) if kind is not None else None
            except InputError:
                return None, f"{source} is not one JSON object a line"
        values = {"source": source}
    else:
        if first.folder or first.files or first.name not in (None, "default"):
            return None, f"{first.path} was loaded with a configuration or files of its own"
        if "[" in (first.split or ""):
            return None, f"{first.path} was loaded as {first.split}"
        values = {"source": first.path, "split": first.split or "train"}
    if kind is None:
        return None, f"rows of {values['source']} are {', '.join(first.columns) or 'unknown'}"
    return {**values, "kind": kind}, ""


def _rows(
    values: dict[str, Any], observation: Observation, recipe: RecipeRecord, notes: Notes
) -> DataContext:
    from autotune.records.script import DataContext

    notes.take("data set", str(values["source"]), "load_dataset")
    if observation.trainer_kind == "trl" and not carried(observation, "formatting_func"):
        notes.take("format of the rows", str(values["kind"]), "TRL's own")
        values |= _as_trl(str(values["kind"]), observation)
    elif values["kind"] != "tokens":
        notes.leave("the job's own tokenisation of the rows", f"the script formats them as {values['kind']}")
    return DataContext(**values)


def _as_trl(kind: str, observation: Observation) -> dict[str, Any]:
    out: dict[str, Any] = {}
    length = carried(observation, "max_length")
    if isinstance(length, int) and length > 0:
        out |= {"max_length": length, "long_examples": "truncate"}
    if kind == "messages":
        out["supervise"] = "assistant" if carried(observation, "assistant_only_loss") is True else "all"
    column = carried(observation, "dataset_text_field")
    if kind == "text" and isinstance(column, str):
        out["text_column"] = column.strip("'\"")
    return out
