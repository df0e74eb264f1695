"""A number of the job is changed at the one place where it is written; else the refusal names the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from apply_sites import site_in
from findings_made import diagnosis, finding, fix, observation, step

from autotune.apply.counts import plain
from autotune.apply.plan import build_plan
from autotune.apply.target import target_of
from autotune.apply.workbench import Changes, work_out
from autotune.records.plan import Plan

NAMES = r"\w*accum\w*|grad_acc(_steps)?|acc_steps|ga_steps|(num_|n_)?micro_(steps|batches)"
STEPS = (
    step("set_count", at="loader", argument="batch_size", was="4", value="8"),
    step("set_count", names=NAMES, was="2", value="1"),
)
LOOP = """\
from torch.utils.data import DataLoader

{numbers}
loader = DataLoader(dataset, batch_size={batch_size}, collate_fn=collate)
for number, batch in enumerate(loader, 1):
    loss = model(**batch).loss / {accumulation}
    loss.backward()
    if number % {accumulation} == 0:
        optimizer.step()
"""


def plan_of(
    tmp_path: Path, text: str, *words: str, detail: dict[str, Any] | None = None
) -> tuple[Plan, Path]:
    path = tmp_path / "train.py"
    path.write_text(text)
    loader = site_in(path, "DataLoader", kind="loader", parameters=("dataset",))
    seen = {**loader.arguments, "batch_size": loader.arguments["batch_size"].model_copy(update={"text": "4"})}
    sites = [
        loader.model_copy(update={"arguments": seen, "detail": {**loader.detail, **(detail or {})}}),
        site_in(path, "step", kind="optimizer_step", callee="torch.optim.Optimizer.step"),
    ]
    made = observation(["python", path.name, *words], tmp_path, sites)
    return build_plan(diagnosis(finding("memory/joint-micro-batch", fix(*STEPS))), made), path


def changes(tmp_path: Path, text: str, *words: str, detail: dict[str, Any] | None = None) -> Changes:
    plan, path = plan_of(tmp_path, text, *words, detail=detail)
    group = plan.groups[0]
    assert group.admissible, group.reason
    loader = site_in(path, "DataLoader", kind="loader", parameters=("dataset",))
    seen = {**loader.arguments, "batch_size": loader.arguments["batch_size"].model_copy(update={"text": "4"})}
    loader = loader.model_copy(update={"arguments": seen, "detail": {**loader.detail, **(detail or {})}})
    return work_out(group.members, target_of(observation(["python", path.name, *words], tmp_path, [loader])))


def refusal(tmp_path: Path, text: str, *words: str, detail: dict[str, Any] | None = None) -> str:
    plan, _ = plan_of(tmp_path, text, *words, detail=detail)
    assert not plan.groups[0].admissible
    return plan.groups[0].reason


def test_two_literals(tmp_path: Path) -> None:
    text = LOOP.format(
        numbers="BATCH = 4\nACCUMULATION: int = 2", batch_size="BATCH", accumulation="ACCUMULATION"
    )
    (edited,) = changes(tmp_path, text).texts.values()
    assert edited == text.replace("BATCH = 4", "BATCH = 8").replace("int = 2", "int = 1")


def test_a_literal_in_the_call_and_a_keyword(tmp_path: Path) -> None:
    numbers = "accelerator = Accelerator(gradient_accumulation_steps=2)"
    text = LOOP.format(numbers=numbers, batch_size=4, accumulation="accelerator.gradient_accumulation_steps")
    (edited,) = changes(tmp_path, text).texts.values()
    assert "batch_size=8" in edited and "gradient_accumulation_steps=1)" in edited


@pytest.mark.parametrize("given", [("--batch-size", "4", "--grad-acc", "2"), ("--batch-size", "4")])
def test_options_of_the_command_line_and_their_defaults(tmp_path: Path, given: tuple[str, ...]) -> None:
    options = [
        'parser.add_argument("--batch-size", default=1)',
        'parser.add_argument("--grad-acc", default=2)',
    ]
    numbers = "\n".join(options)
    text = LOOP.format(numbers=numbers, batch_size="args.batch_size", accumulation="args.grad_acc")
    made = changes(tmp_path, text, *given, detail={"flag.batch_size": "--batch-size"})
    assert made.argv[2:] == ["--batch-size", "8", "--grad-acc", "1"]
    assert all(edited == text for edited in made.texts.values())


def test_a_key_of_a_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("train:\n  accumulation: 2  # micro-batches\n  epochs: 2\n")
    text = LOOP.format(numbers="", batch_size=4, accumulation='config["train"]["accumulation"]')
    made = changes(tmp_path, text, "c.yaml")
    assert made.texts[tmp_path / "c.yaml"] == "train:\n  accumulation: 1  # micro-batches\n  epochs: 2\n"


@pytest.mark.parametrize(
    ("numbers", "accumulation", "why"),
    [
        ("", "2", "no place says that it is 2"),
        ("ACC_STEPS = 1 + 1", "ACC_STEPS", "no place says that it is 2"),
        ("accum = 2\nconfig = dict(accumulation=2)", "accum", "2 places may say that it is 2: accum ("),
        ("accum = 2\nif big:\n    accum = 4", "accum", "'accum' is assigned more than once (line 3)"),
        ("accum = 2.0", "accum", "no place says that it is 2"),
    ],
)
def test_what_is_not_certain_is_refused_with_its_line(
    tmp_path: Path, numbers: str, accumulation: str, why: str
) -> None:
    reason = refusal(tmp_path, LOOP.format(numbers=numbers, batch_size=4, accumulation=accumulation))
    assert why in reason
    assert f"{tmp_path / 'train.py'}:" in reason or "line 3" in reason


def test_a_batch_size_that_is_computed_is_refused_with_its_line(tmp_path: Path) -> None:
    text = LOOP.format(
        numbers="ACCUMULATION = 2\nROWS = 8", batch_size="ROWS // 2", accumulation="ACCUMULATION"
    )
    assert f"{tmp_path / 'train.py'}:5: 'batch_size' is computed there" in refusal(tmp_path, text)


def test_names_are_compared_however_they_are_spelled() -> None:
    assert plain("--Grad-Accum") == plain("grad_accum") == "grad_accum"
