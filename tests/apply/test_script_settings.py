"""What a generated script takes over from the job's settings and data, and what it says it does not."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from apply_sites import calls_named, site_of
from findings_made import observation

from autotune.cli.main import run as cli
from autotune.errors import InputError
from autotune.optimize.script import script_of
from autotune.optimize.script_data import data_of
from autotune.optimize.script_notes import Notes
from autotune.optimize.script_settings import lora_of, optimizer_settings, schedule_of, seed_of
from autotune.records.observation import Observation
from autotune.records.recipe import AdapterRecipe, DatasetRecipe, LoadedRecipe, RecipeRecord, ScheduleRecipe

CALL = "TrainingArguments('out')\n"


def watched(tmp_path: Any, **fields: Any) -> Observation:
    detail = {f"field.{name}": value for name, value in fields.items()}
    site = site_of(
        CALL, calls_named(CALL, "TrainingArguments")[0], kind="carrier", callee="t.T", detail=detail
    )
    return observation(["python", "train.py"], tmp_path, [site])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"lr_scheduler_type": "<SchedulerType.LINEAR: 'linear'>"}, {"schedule": "linear"}),
        ({"lr_scheduler_type": "'cosine'", "warmup_steps": 100}, {"schedule": "cosine", "warmup_steps": 100}),
        ({"lr_scheduler_type": "'cosine'", "warmup_ratio": 0.1}, {"schedule": "cosine", "warmup_ratio": 0.1}),
        ({"lr_scheduler_type": "linear", "warmup_steps": 0.05}, {"schedule": "linear", "warmup_ratio": 0.05}),
        ({"lr_scheduler_type": "'linear'", "warmup_steps": 0}, {"schedule": "linear"}),
    ],
)
def test_schedule_and_warm_up_are_taken_over(tmp_path: Any, fields: Any, expected: Any) -> None:
    notes = Notes()
    assert schedule_of(watched(tmp_path, **fields), RecipeRecord(), notes) == expected
    shown = [f"{v:g}" if v.__class__ is not str else v for v in expected.values()]
    assert [t.value for t in notes.taken] == shown and notes.left == []


def test_what_was_not_seen_is_said(tmp_path: Any) -> None:
    notes = Notes()
    assert schedule_of(watched(tmp_path), RecipeRecord(), notes) == {"schedule": "constant"}
    assert notes.taken == [] and "none was seen" in notes.left[0].reason
    assert seed_of(watched(tmp_path), RecipeRecord(), notes) == {} and notes.taken == []
    assert seed_of(watched(tmp_path), RecipeRecord(seed=5), notes) == {"seed": 5}
    assert seed_of(watched(tmp_path, seed=7), RecipeRecord(seed=5), notes) == {"seed": 7}


def made(name: str | None, kind: str = "LambdaLR", **arguments: Any) -> RecipeRecord:
    return RecipeRecord(schedules=[ScheduleRecipe(class_name=kind, function=name, arguments=arguments)])


COSINE = "_get_cosine_schedule_with_warmup_lr_lambda"


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (made(COSINE, num_warmup_steps=10, num_cycles=0.5), {"schedule": "cosine", "warmup_steps": 10}),
        (made("_get_linear_schedule_with_warmup_lr_lambda", num_warmup_steps=0), {"schedule": "linear"}),
        (made(None, "CosineAnnealingLR", T_max=50, eta_min=0), {"schedule": "cosine"}),
    ],
)
def test_a_schedule_object_says_its_curve(tmp_path: Any, recipe: RecipeRecord, expected: Any) -> None:
    notes = Notes()
    # the object wins over training arguments, which another part of the script may have made
    assert schedule_of(watched(tmp_path, lr_scheduler_type="constant"), recipe, notes) == expected
    assert notes.left == [] and notes.taken[0].value == expected["schedule"]


@pytest.mark.parametrize(
    "recipe",
    [
        made(COSINE, num_warmup_steps=10, num_cycles=2.0),
        made("<lambda>"),
        made(None, "OneCycleLR", total_steps=100),
        made(None, "CosineAnnealingLR", eta_min=1e-6),
        RecipeRecord(
            schedules=[ScheduleRecipe(class_name="LinearLR"), ScheduleRecipe(class_name="SequentialLR")]
        ),
    ],
)
def test_a_curve_without_a_name_is_left_and_said(tmp_path: Any, recipe: RecipeRecord) -> None:
    notes = Notes()
    assert schedule_of(watched(tmp_path), recipe, notes) == {"schedule": "constant"}
    assert notes.taken == [] and recipe.schedules[-1].class_name in notes.left[0].what


def test_warm_up_under_accelerate_is_counted_in_steps_of_one_rank(tmp_path: Any) -> None:
    job = watched(tmp_path).model_copy(update={"trainer_kind": "accelerate", "expected_ranks": 4})
    assert schedule_of(job, made(COSINE, num_warmup_steps=40), Notes())["warmup_steps"] == 10


def test_optimizer_of_another_kind_gives_no_numbers(tmp_path: Any) -> None:
    notes = Notes()
    seen = RecipeRecord(optimizer={"class_name": "SGD", "lr": 0.1, "weight_decay": 0.0})
    found = optimizer_settings(watched(tmp_path), seen, notes)
    assert "learning_rate" not in found and found["max_grad_norm"] == 0.0
    assert notes.left[0].what == "optimizer SGD (learning rate 0.1)"
    notes = Notes()
    seen = RecipeRecord(optimizer={"class_name": "AdamW", "lr": 0.1, "decay_vectors": False}, ignored=["odd"])
    found = optimizer_settings(watched(tmp_path, max_grad_norm=1.0), seen, notes)
    assert found["learning_rate"] == 0.1 and found["decay_vectors"] is False and found["max_grad_norm"] == 1.0
    assert [n.what for n in notes.left] == ["odd", "learning-rate schedule"]


def test_adapters_are_taken_over_or_named() -> None:
    notes = Notes()
    lora = lora_of(AdapterRecipe(rank=8, alpha=16.0, target_modules=["q_proj"]), notes)
    assert lora is not None and (lora.rank, lora.alpha, lora.target_modules) == (8, 16.0, ["q_proj"])
    assert notes.left == []
    assert lora_of(AdapterRecipe(rank=8, target_modules="model.*q"), notes) is None
    assert lora_of(AdapterRecipe(odd=["PrefixTuningConfig"]), notes) is None
    assert "PrefixTuningConfig" in notes.left[-1].what
    assert lora_of(AdapterRecipe(rank=8, odd=["use_dora"], target_modules=["v"]), notes) is not None
    assert "use_dora" in notes.left[-1].what


def loaded(path: str, **rest: Any) -> RecipeRecord:
    """A job whose rows come from one call of load_dataset."""
    dataset = DatasetRecipe(class_name="Dataset", item_keys=["input_ids"])
    return RecipeRecord(dataset=dataset, loaded=[LoadedRecipe(path=path, **rest)])


def test_rows_of_load_dataset_are_taken_over(tmp_path: Any) -> None:
    notes = Notes()
    found = data_of(
        watched(tmp_path), loaded("org/chats", split="train_sft", columns={"messages": "other"}), notes
    )
    assert (found.source, found.split, found.kind, found.supervise) == (
        "org/chats",
        "train_sft",
        "messages",
        "assistant",
    )
    assert "tokenisation" in notes.left[0].what and notes.missing == []
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "a", "completion": "b"}\n')
    columns = {"prompt": "string", "completion": "string"}
    found = data_of(watched(tmp_path), loaded("json", files=[str(file)], columns=columns), Notes())
    assert (found.source, found.kind) == (str(file), "prompt_completion")


def test_rows_are_formatted_as_trl_does(tmp_path: Any) -> None:
    notes = Notes()
    job = watched(tmp_path, max_length=512, dataset_text_field="text", assistant_only_loss=False)
    job = job.model_copy(update={"trainer_kind": "trl"})
    found = data_of(job, loaded("org/chats", columns={"messages": "other"}), notes)
    assert (found.supervise, found.max_length, found.long_examples) == ("all", 512, "truncate")
    assert notes.left == []


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (RecipeRecord(), "no data set class was seen"),
        (RecipeRecord(dataset=DatasetRecipe(class_name="list")), "a list has no class of yours"),
        (loaded("csv", files=["/rows.csv"], columns={"text": "string"}), "csv was loaded with"),
        (loaded("json", files=["?"], columns={"text": "string"}), "json of several files"),
        (loaded("org/rows", name="en", columns={"text": "string"}), "configuration"),
        (loaded("org/rows", split="train[:10%]", columns={"text": "string"}), "train[:10%]"),
        (loaded("org/rows", columns={"question": "string"}), "rows of org/rows are question"),
        (loaded("org/rows", columns={"prompt": "other", "completion": "other"}), "rows of org/rows"),
        (
            RecipeRecord(loaded=[LoadedRecipe(path="org/a"), LoadedRecipe(path="org/b")]),
            "several data sets were loaded (org/a, org/b)",
        ),
        (
            RecipeRecord(
                dataset=DatasetRecipe(class_name="Rows", file="/t.py", guarded=True, item_keys=["question"])
            ),
            "rows of Rows are question",
        ),
    ],
)
def test_rows_that_cannot_be_named_are_asked_for(tmp_path: Any, recipe: RecipeRecord, said: str) -> None:
    notes = Notes()
    assert data_of(watched(tmp_path), recipe, notes).source == "data/train.jsonl"
    assert said in notes.left[0].reason and "--set data.source=" in notes.missing[0]


RECORDED = Path(__file__).parents[1] / "notebook" / "recorded"


def test_a_recorded_run_gives_a_script_that_says_what_it_took_over(tmp_path: Path) -> None:
    """A run that was really watched; its tokenizer is copied beside the script."""
    run = shutil.copytree(next(RECORDED.glob("at-*")), tmp_path / "run")
    with pytest.raises(InputError, match="tokenizer"):
        script_of(run, tmp_path / "out.py")
    tokenizer = run / "launches" / "observe" / "recipe" / "tokenizer"
    tokenizer.mkdir(parents=True)
    (tokenizer / "tokenizer.json").write_text("{}")
    filled = script_of(run, tmp_path / "out.py")
    source = filled.text
    assert filled.launch.startswith("torchrun --nproc-per-node ") and filled.launch.endswith("out.py")
    assert source.count("\n") <= 500
    doc = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    assert f"Filled from run {run.name}" in doc and "learning rate" in doc
    assert "Compiled on a GPU: " in doc and "--compile never switches it off" in doc
    assert (tmp_path / "out_tokenizer" / "tokenizer.json").is_file()
    rows = tmp_path / "rows.jsonl"
    with pytest.raises(InputError, match=r"rows\.jsonl: there is no such file"):
        script_of(run, tmp_path / "out.py", settings=[f"data.source={rows}"])
    rows.write_text('{"user": "a", "assistant": "b"}\n')
    with pytest.raises(InputError, match=r"\(user, assistant\).*prompt_completion.*--set data\.kind=KIND"):
        script_of(run, tmp_path / "out.py", settings=[f"data.source={rows}"])
    rows.write_text('{"text": "a"}\n')
    assert (
        "row[cfg.text_column]" in script_of(run, tmp_path / "out.py", settings=[f"data.source={rows}"]).text
    )
    changed = script_of(run, tmp_path / "out.py", settings=["run.seed=5", f"data.source={rows}"])
    assert "seed=5" in changed.text and "run.seed 5 (given by hand)" in " ".join(changed.text.split())
    with pytest.raises(InputError, match="generate --fields"):
        script_of(run, tmp_path / "out.py", settings=["run.sed=5"])


@pytest.mark.parametrize("with_data", [False, True])
def test_no_command_is_shown_while_something_must_be_set(
    tmp_path: Path, with_data: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(next(RECORDED.glob("at-*")), tmp_path / "run")
    (run / "launches" / "observe" / "recipe" / "tokenizer").mkdir(parents=True)
    seen = run / "launches" / "observe" / "observation.json"
    record = json.loads(seen.read_text())
    for rank in record["ranks"]:
        rank["recipe"] |= {"dataset": None, "loaded": []}
    seen.write_text(json.dumps(record))
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    words = ["apply", str(run), "--template", "fsdp2", "-o", str(tmp_path / "out.py"), "--overwrite"]
    words += ["--set", f"data.source={tmp_path / 'rows.jsonl'}"] if with_data else []
    (tmp_path / "out.py").write_text("before\n")
    assert cli(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert ("run it with: torchrun" in shown) is with_data
    assert ("still to be set: the data set: " in shown) is not with_data
    assert ("--set data.source=FILE --set data.kind=KIND" in shown) is not with_data
    assert "torchrun" in (tmp_path / "out.py").read_text()
    assert cli(words[:6]) == 2 and "--overwrite replaces it" in capsys.readouterr().err
