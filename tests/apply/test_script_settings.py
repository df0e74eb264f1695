"""What a generated script takes over from the job's training arguments."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from typing import Any

import pytest
from apply_sites import calls_named, site_of
from findings_made import observation

from autotune.errors import InputError
from autotune.optimize.script import _schedule, _seed, script_of
from autotune.records.observation import Observation
from autotune.records.script import NotTakenOver, TakenOver

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
    taken: list[TakenOver] = []
    left: list[NotTakenOver] = []
    assert _schedule(watched(tmp_path, **fields), taken, left) == expected
    assert [t.value for t in taken] == [f"{v:g}" if v.__class__ is not str else v for v in expected.values()]
    assert left == []


def test_what_was_not_seen_is_said(tmp_path: Any) -> None:
    taken: list[TakenOver] = []
    left: list[NotTakenOver] = []
    assert _schedule(watched(tmp_path), taken, left) == {"schedule": "constant"}
    assert taken == [] and "not read from the run" in left[0].reason
    assert _seed(watched(tmp_path), taken) == {} and taken == []
    assert _seed(watched(tmp_path, seed=7), taken) == {"seed": 7} and taken[0].what == "seed"


RECORDED = Path(__file__).parents[1] / "notebook" / "recorded"


def test_a_recorded_run_gives_a_script_that_says_what_it_took_over(tmp_path: Path) -> None:
    """A run that was really watched; its tokenizer is copied beside the script."""
    run = shutil.copytree(next(RECORDED.glob("at-*")), tmp_path / "run")
    with pytest.raises(InputError, match="tokenizer"):
        script_of(run, tmp_path / "out.py")
    tokenizer = run / "launches" / "observe" / "recipe" / "tokenizer"
    tokenizer.mkdir(parents=True)
    (tokenizer / "tokenizer.json").write_text("{}")
    source, command = script_of(run, tmp_path / "out.py")
    assert command.startswith("torchrun --nproc-per-node ") and command.endswith("out.py")
    assert source.count("\n") <= 500
    doc = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    assert f"Filled from run {run.name}" in doc and "learning rate" in doc
    assert "Compiled on a GPU: " in doc and "--compile never switches it off" in doc
    assert (tmp_path / "out_tokenizer" / "tokenizer.json").is_file()
