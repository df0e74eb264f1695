"""The tutorial's rule works as printed, and a new rule lints and tests from the first moment."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from autotune.cli.main import run
from autotune.facts.catalogue import catalogue as fact_catalogue
from autotune.records.sites import SiteKind
from autotune.rules.meaning import PLACEHOLDERS
from autotune.rules.steps import STEPS
from autotune.rules.templates import check

DOCS = Path(__file__).resolve().parents[2] / "docs"


def tutorial_rule() -> str:
    text = (DOCS / "writing-rules.md").read_text()
    blocks: list[str] = re.findall(r"```yaml\n(.*?)```", text, re.S)
    return next(block for block in blocks if block.startswith("id: "))


def test_the_tutorial_rule_lints_and_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "team-rules" / "stall" / "evaluation-too-often.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(tutorial_rule())
    assert run(["rules", "lint", str(tmp_path / "team-rules")]) == 0
    assert " 0 errors" in capsys.readouterr().out
    assert run(["rules", "test", str(tmp_path / "team-rules")]) == 0
    assert "4 examples of 1 rule, 0 failed" in capsys.readouterr().out
    assert (
        run(["rules", "explain", "stall/evaluation-too-often", "--rules", str(tmp_path / "team-rules")]) == 0
    )
    assert "stall.evaluation_frac >= 0.5" in capsys.readouterr().out


@pytest.mark.parametrize("group", sorted({name.split(".")[0] for name in fact_catalogue()} | {"something"}))
def test_a_new_rule_is_in_order(group: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "new", f"{group}/first-try", "--into", str(tmp_path)]) == 0
    assert run(["rules", "lint", str(tmp_path)]) == 0
    assert run(["rules", "test", str(tmp_path)]) == 0
    assert run(["rules", "new", f"{group}/first-try", "--into", str(tmp_path)]) == 2
    assert run(["rules", "new", "no id", "--into", str(tmp_path)]) == 2
    capsys.readouterr()


def test_errors_end_with_code_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "data" / "wrong.yaml"
    path.parent.mkdir()
    path.write_text(
        tutorial_rule()
        .replace("stall/evaluation-too-often", "data/wrong")
        .replace("severity: medium", "severity: mdium")
    )
    assert run(["rules", "lint", "--json", str(tmp_path)]) == 2
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [(p["line"], p["column"], p["level"]) for p in problems] == [(3, 11, "error")]
    assert run(["rules", "test", str(tmp_path)]) == 2
    assert "did you mean 'medium'?" in capsys.readouterr().err


def test_a_pack_without_examples_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "data" / "bare.yaml"
    path.parent.mkdir()
    head = tutorial_rule().split("examples:")[0].replace("stall/evaluation-too-often", "data/bare")
    path.write_text(head.replace("stall.evaluation_frac >= 0.5", "stall.evaluation_frac >= 0.7"))
    assert run(["rules", "lint", str(tmp_path)]) == 2
    assert "no example expects 'match'" in capsys.readouterr().out
    assert run(["rules", "test", str(tmp_path)]) == 2
    assert "no example ran" in capsys.readouterr().err


def test_explaining_an_unknown_rule_suggests_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "explain", "attention/eger"]) == 2
    assert "did you mean 'attention/eager'?" in capsys.readouterr().err


def test_the_page_names_what_there_is() -> None:
    page = (DOCS / "writing-rules.md").read_text()
    fixes = page.partition("## Fixes")[2].partition("## Texts")[0]
    actions = {get_args(step.model_fields["action"].annotation)[0] for step in STEPS}
    assert [action for action in actions if f"`{action}`" not in fixes] == []
    kinds = re.findall(
        r"`(\w+)`", fixes.partition("The kinds are ")[2].partition("`autotune rules schema`")[0]
    )
    assert len(kinds) >= 20 and set(kinds) - {"print"} <= set(get_args(SiteKind))
    assert [word for word in PLACEHOLDERS if f"`{{{word}}}`" not in fixes] == []
    filters = re.findall(r"`(\w+)`", page.partition("Filters:")[2].partition("and a few")[0])
    assert [name for name in filters if check(f"{{{{ run.step_ms | {name} }}}}", fact_catalogue())[1]] == []
