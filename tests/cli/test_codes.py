"""Every fault has a registered code with a page, and says it."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import autotune
from autotune import errors
from autotune.cli.main import _wants_document, run
from autotune.console import Screen
from autotune.error_codes import CODES, EXIT_MEANINGS
from autotune.errors import AutotuneError, Exit

PACKAGE = Path(autotune.__file__).parent
FAMILY = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, AutotuneError)
}


def _raises() -> list[tuple[str, str, str | None]]:
    """(place, exception class, code or None) of every fault that is made anywhere in the package."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if "probe" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and name in FAMILY:
                codes = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
                for code in codes:
                    assert isinstance(code, ast.Constant), f"{path}:{node.lineno}: the code is no plain text"
                place = f"{path.relative_to(PACKAGE)}:{node.lineno}"
                found.append((place, name, str(codes[0].value) if codes else None))  # type: ignore[attr-defined]
    return found


def test_every_raise_uses_a_registered_code_of_its_exit_code() -> None:
    made = _raises()
    assert len(made) > 80
    wrong = []
    for place, name, code in made:
        family = FAMILY[name]
        page = CODES.get(code or family.code)
        if page is None or page.exit_code != family.exit_code:
            wrong.append((place, name, code))
    assert wrong == []


def test_every_code_is_used_and_every_exit_code_has_a_meaning() -> None:
    told = {code for _, _, code in _raises() if code} | {family.code for family in FAMILY.values()}
    cli = (PACKAGE / "cli" / "faults.py").read_text(encoding="utf-8")
    rules = (PACKAGE / "rules" / "problems.py").read_text(encoding="utf-8")
    assert [code for code in CODES if code not in told and f'"{code}"' not in cli + rules] == []
    assert set(EXIT_MEANINGS) == set(Exit)


@pytest.mark.parametrize("code", [*CODES, *(str(int(e)) for e in Exit)])
def test_explain_has_a_page_for_every_code(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", code]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{code} (exit code ") and len(shown) > 40


@pytest.mark.parametrize("number", [0, 2, 5])
def test_explain_of_an_exit_code_names_codes_only_where_there_are_any(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [name for name, page in CODES.items() if int(page.exit_code) == number]
    assert run(["explain", str(number)]) == 0
    shown = capsys.readouterr().out
    assert ("Error codes" in shown) == bool(names) and "none" not in shown.splitlines()[-1]


def test_explain_lists_all_and_suggests(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["codes"]) == len(CODES) + len(Exit)
    assert run(["explain", "run-unkown"]) == 2
    assert "did you mean 'run-unknown'" in capsys.readouterr().err
    assert run(["explain", "padding-waste"]) == 2
    assert "did you mean 'batching/padding-waste'?" in capsys.readouterr().err
    assert run(["explain", "attention/eager"]) == 0
    assert "all of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["anlyze", "--json"], "command-unknown"),
        (["rules", "lst", "--json"], "command-unknown"),
        (["facts", "--json", "--wrong"], "option-unknown"),
        (["verify", "--min-pairs", "1", "--json"], "value-refused"),
        (["trace", "--json"], "argument-missing"),
        (["analyze", "--json"], "command-missing"),
        (["report", "--json", "nothing"], "run-missing"),
        (["analyze", "--json", "--trace", "nowhere.json"], "trace-missing"),
        (["explain", "--json", "nonsense"], "code-unknown"),
        (["schema", "--json", "nonsense"], "schema-unknown"),
        (["analyze", "--json", "--", "pythn", "train.py"], "program-missing"),
        (["analyze", "--json", "--rules", "nowhere", "--", "python", "x.py"], "value-refused"),
    ],
)
def test_a_fault_with_json_is_one_document_and_one_line(
    arguments: list[str],
    code: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    left = run(arguments)
    shown = capsys.readouterr()
    answer = json.loads(shown.out)
    assert answer["schema_version"] == 1
    assert answer["error"]["code"] == code
    assert answer["error"]["exit_code"] == left == int(CODES[code].exit_code)
    told = [line for line in shown.err.splitlines() if line.startswith("autotune: ")]
    assert len(told) == 1 and told[0].endswith(f"[{code}]")


def test_the_jobs_own_json_option_is_not_ours(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["analyze", "--", "pythn", "train.py", "--json"]) == 3
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("verb", ["analyze", "watch", "optimize"])
@pytest.mark.parametrize("words", [["pythn", "train.py"], ["python", "trian.py"], ["train.py"]])
def test_a_command_that_cannot_start_leaves_no_run(
    verb: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    assert run([verb, "--", *words]) == 3
    assert list(tmp_path.rglob("run.json")) == []


def test_an_answer_is_not_followed_by_a_second_document() -> None:
    """A job that crashes after some steps has a diagnosis: its fault is only the line and the exit code."""
    assert _wants_document({"screen": Screen(as_json=True)}, [])
    assert not _wants_document({"screen": Screen(as_json=True, answered=True)}, ["analyze", "--json"])
    assert not _wants_document({"screen": Screen()}, ["analyze", "python", "x.py", "--json"])
    assert _wants_document({}, ["analyze", "--json", "--", "python"])
    assert not _wants_document({}, ["analyze", "--", "python", "--json"])


def test_a_bug_is_told_as_json_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.facts.catalogue.catalogue", lambda: 1 / 0)
    assert run(["facts", "--json"]) == 70
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "bug" and "ZeroDivisionError" in error["what"]
    assert "ZeroDivisionError" in Path(error["where"]).read_text()
    Path(error["where"]).unlink()


def test_all_errors_of_rule_files_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / f"{name}.yaml").write_text(f"id: data/{name}\ntitle: [\n")
    assert run(["rules", "list", "--json", "--rules", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    error = json.loads(shown.out)["error"]
    assert error["code"] == "rules-broken" and len(error["problems"]) >= 2


def test_a_record_of_another_version_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "at-20260101-000000-x"
    folder.mkdir()
    for name in ("run.json", "diagnosis.json"):
        (folder / name).write_text('{"schema_version": 99}')
    assert run(["report", str(folder)]) == 2
    shown = capsys.readouterr().err
    assert "schema version 99; this autotune reads version 1" in shown and "[record-version]" in shown


def test_explain_shows_the_values_of_a_run_as_rules_explain_does(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = Path(__file__).parents[1] / "notebook" / "recorded"
    (name,) = (path.name for path in recorded.glob("at-*"))
    words = ["attention/eager", "--run", name, "--runs-dir", str(recorded)]
    assert run(["explain", *words]) == 0
    shown = capsys.readouterr().out
    assert "in this run:" in shown and "attention.implementation = " in shown
    assert run(["rules", "explain", *words]) == 0
    assert capsys.readouterr().out == shown
    assert run(["explain", "run-unknown", "--run", name]) == 2
    assert "category/name" in capsys.readouterr().err
