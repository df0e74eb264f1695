"""What a job is made of, so that a script of another shape can train the same: weights, data, settings."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from autotune.records.base import Record


class DatasetRecipe(Record):
    """The data set object that fed the training, as it was constructed."""

    class_name: str
    file: str | None = None  # source file of the class; None when it is not a user's
    module: str | None = None
    arguments: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
    tokenizer_argument: str | None = None  # parameter that took the tokenizer
    unknown_arguments: list[str] = Field(default_factory=list)  # values that are no plain ones
    item_keys: list[str] = Field(default_factory=list)  # of an example that is a mapping; empty: a tensor
    guarded: bool | None = None  # the file can be imported without training (a __main__ guard)


class ScheduleRecipe(Record):
    """One learning-rate schedule of the first optimizer, as it was constructed."""

    class_name: str
    function: str | None = None  # of a LambdaLR: the name of the curve
    arguments: dict[str, str | int | float | bool] = Field(default_factory=dict)  # plain ones only


class AdapterRecipe(Record):
    """A low-rank adapter as peft has it."""

    rank: int | None = None  # None: an adapter of another kind
    alpha: float = 1.0
    dropout: float = 0.0
    target_modules: list[str] | str = Field(default_factory=list)
    odd: list[str] = Field(default_factory=list)  # settings that are not the usual ones


class LoadedRecipe(Record):
    """One call of `datasets.load_dataset`."""

    path: str  # hub id, absolute folder, or a builder such as json
    name: str | None = None  # configuration of the data set
    split: str | None = None
    folder: str | None = None  # data_dir
    files: list[str] = Field(default_factory=list)  # absolute; "?": one for each split
    columns: dict[str, str] = Field(default_factory=dict)  # name and dtype, "other" when nested


class RecipeRecord(Record):
    """Rank 0's view; None and empty mean that it was not seen."""

    model_path: str | None = None  # folder or hub id the weights came from
    model_config_values: dict[str, Any] | None = None  # config values that differ from the class's own
    tokenizer_class: str | None = None
    tokenizer_path: str | None = None  # folder or hub id; None for one made from a file
    tokenizer_saved: str | None = None  # copy in the launch folder, relative
    dataset: DatasetRecipe | None = None
    optimizer: dict[str, float | bool | str | None] = Field(
        default_factory=dict
    )  # of the first one, with its class
    schedules: list[ScheduleRecipe] = Field(default_factory=list)  # of the first optimizer
    seed: int | None = None  # what the job gave torch
    adapter: AdapterRecipe | None = None
    loaded: list[LoadedRecipe] = Field(default_factory=list)
    scheduler: str | None = None  # not filled any more
    max_grad_norm: float | None = None  # not filled any more
    ignored: list[str] = Field(default_factory=list)  # what was seen and cannot be carried over
