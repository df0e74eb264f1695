"""The configuration file: found upward, checked with its line, weaker than a flag, above a default."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from autotune.cli.main import cli, run
from autotune.errors import InputError
from autotune.settings import KEYS, VERB_TABLES, load_settings
from autotune.store import list_runs

TRACE = Path(__file__).parent.parent / "traces" / "h200_qwen35_2b4_packed_varlen_1step.json.gz"


def _write(folder: Path, text: str, name: str = "autotune.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_the_nearest_file_upward_holds(tmp_path: Path) -> None:
    _write(tmp_path, "steps = 5\n")
    inner = _write(tmp_path / "a", "[tool.autotune]\nsteps = 7\n", "pyproject.toml")
    (inner / "b").mkdir()
    assert load_settings(inner / "b").values["steps"].value == 7
    assert load_settings(tmp_path).values["steps"].value == 5
    _write(inner, "steps = 9\n")
    assert load_settings(inner / "b").values["steps"].value == 9, "autotune.toml stands before pyproject.toml"


def test_a_byte_order_mark_is_no_key(tmp_path: Path) -> None:
    _write(tmp_path, "\ufeffsteps = 5\n")
    assert load_settings(tmp_path).values["steps"].value == 5


@pytest.mark.parametrize("text", ["[tool]\nautotune = {steps = 7}\n", "[ tool . autotune ]\nsteps = 7\n"])
def test_the_table_is_found_however_it_is_written(tmp_path: Path, text: str) -> None:
    _write(tmp_path, text, "pyproject.toml")
    assert load_settings(tmp_path).values["steps"].value == 7


@pytest.mark.parametrize("text", ["tool = 5  # autotune\n", "tool = []  # autotune\n"])
def test_a_tool_that_is_no_table_is_none_of_ours(tmp_path: Path, text: str) -> None:
    _write(tmp_path, text, "pyproject.toml")
    assert load_settings(tmp_path).values == {}


def test_what_cannot_be_a_configuration_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "autotune.toml").symlink_to("nowhere")
    with pytest.raises(InputError, match="no file that can be read"):
        load_settings(tmp_path)
    (tmp_path / "autotune.toml").unlink()
    _write(tmp_path, "#" * 1_000_001)
    with pytest.raises(InputError, match="too many"):
        load_settings(tmp_path)


def test_a_pyproject_of_others_is_passed_over(tmp_path: Path) -> None:
    _write(tmp_path, "steps = 5\n")
    inner = _write(tmp_path / "a", "[project]\nname = 'x'  # not tool.autotune\n", "pyproject.toml")
    assert load_settings(inner).values["steps"].value == 5


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("steps = 5\nstepps = 3\n", 2, "did you mean 'steps'"),
        ("\n\nmin_pairs = 3\n", 3, "did you mean 'min-pairs'"),
        ("steps = 0\n", 1, "steps takes a whole number above zero, not 0"),
        ("steps = true\n", 1, "steps takes a whole number"),
        ("unsafe = 'yes'\n", 1, "unsafe takes true or false"),
        ("disable = 'debug/*'\n", 1, "disable takes a list of texts"),
        ("fail-on = 'bad'\n", 1, "fail-on takes one of info, low"),
        ("[verify]\nmin-pairs = -1\n", 2, "min-pairs takes"),
        ("[verfy]\nmin-pairs = 1\n", 1, "did you mean 'verify'"),
        ("[severity]\n'data/x' = 'huge'\n", 2, "severity of data/x takes one of"),
        ("steps = 5\nx = [\n", 2, "not valid TOML"),
        ("steps = 5\nx =", 2, "the file ends before the value does"),
        ("verify = 1\n", 1, "'verify' is a table, written [verify]"),
        ("max-minutes = inf\n", 1, "max-minutes takes a number"),
        ("runs-dir = ''\n", 1, "runs-dir takes a path"),
        ('rules = ["a\\u0000"]\n', 1, "rules takes a list of paths"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    _write(tmp_path, text)
    with pytest.raises(InputError) as fault:
        load_settings(tmp_path)
    assert said in str(fault.value)
    assert str(fault.value).startswith(f"{tmp_path / 'autotune.toml'}:{line}")


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    inner = _write(tmp_path, "runs-dir = 'kept'\nrules = ['mine']\n") / "deep"
    inner.mkdir()
    found = load_settings(inner).for_verb("analyze")
    assert found["runs_dir"] == tmp_path / "kept" and found["rule_dirs"] == [tmp_path / "mine"]


def test_every_key_is_an_option_of_some_verb() -> None:
    context = click.Context(cli)
    names = {
        (p.name, f"--{key}" in p.opts)
        for verb in VERB_TABLES
        for p in (cli.get_command(context, verb) or click.Command("none")).params
        for key in KEYS
        if f"--{key}" in p.opts
    }
    assert names == {(key.parameter, True) for key in KEYS.values()}


def test_a_flag_beats_the_file_and_the_file_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path, "runs-dir = 'kept'\nfail-on = 'info'\n[analyze]\nfail-on = 'critical'\n")
    monkeypatch.chdir(tmp_path)
    assert run(["analyze", "-q", "--trace", str(TRACE)]) == 0
    assert len(list_runs(tmp_path / "kept")) == 1
    assert run(["analyze", "-q", "--fail-on", "info", "--runs-dir", "other", "--trace", str(TRACE)]) == 1
    assert len(list_runs(tmp_path / "other")) == 1
    capsys.readouterr()
    assert run(["report", "-q"]) == 1, "the common key holds where the verb has no table"


def test_rules_are_disabled_and_reweighted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    padded = TRACE.with_name("h200_qwen35_2b4_padded_fallback_1step.json.gz")
    _write(
        tmp_path,
        "disable = ['debug/*', 'kernels/causal-conv-fallback']\n[severity]\n'optimizer/not-fused' = 'info'\n",
    )
    monkeypatch.chdir(tmp_path)
    assert run(["analyze", "-q", "--json", "--trace", str(padded)]) == 0
    answer = json.loads(capsys.readouterr().out)
    levels = {finding["rule"]: finding["severity"] for finding in answer["findings"]}
    assert levels["optimizer/not-fused"] == "info" and "kernels/causal-conv-fallback" not in levels
    assert any(note.startswith("debug/*: disabled") for note in answer["notes"])
    _write(tmp_path, "[severity]\n'optimizer/not-fuse' = 'info'\n")
    assert run(["analyze", "-q", "--trace", str(padded)]) == 2
    shown = capsys.readouterr().err
    assert (
        "autotune.toml:2: there is no rule 'optimizer/not-fuse'; did you mean 'optimizer/not-fused'?" in shown
    )
    _write(tmp_path, "disable = ['debgu/*']\n")
    assert run(["analyze", "-q", "--trace", str(padded)]) == 2
    assert "[pattern-matches-nothing]" in capsys.readouterr().err


def test_config_show_gives_each_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path, "steps = 20\n[verify]\nmin-pairs = 4\n")
    monkeypatch.chdir(tmp_path)
    assert run(["config", "show", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    origins = {(row["key"], row["origin"]): row["value"] for row in answer["values"]}
    file = str(tmp_path / "autotune.toml")
    assert answer["file"] == file
    assert origins["steps", f"{file}:1"] == 20 and origins["verify.min-pairs", f"{file}:3"] == 4
    assert origins["max-pairs", "default of optimize"] == 5
    assert {key for key, _ in origins} >= set(KEYS)
    assert run(["config", "show"]) == 0
    assert f"{file}:1" in capsys.readouterr().out


def test_a_broken_file_stops_verbs_but_not_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path, "steps = \n")
    monkeypatch.chdir(tmp_path)
    assert run(["runs"]) == 2
    assert "autotune.toml:1:" in capsys.readouterr().err
    assert run(["analyze", "--help"]) == 0 and run(["explain", "config-broken"]) == 0
    assert run(["completion", "bash"]) == 0 and run(["--help"]) == 0


def test_a_key_without_effect_in_a_verbs_table_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path, "[report]\nsteps = 3\n")
    monkeypatch.chdir(tmp_path)
    assert run(["report"]) == 2
    assert "autotune.toml:2: autotune report has no option 'steps'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "verb", "said"),
    [
        ("max-minutes = 5\nmin-pairs = 1\n", "verify", "autotune.toml:2: min-pairs: 1 is not in the range"),
        ("\nrules = ['nowhere']\n", "analyze", "autotune.toml:2: rules: "),
    ],
)
def test_what_an_option_refuses_is_told_with_the_files_line(
    text: str,
    verb: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _write(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    assert run([verb]) == 2
    assert said in capsys.readouterr().err


def test_every_key_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert [key for key in KEYS if f"`{key}`" not in page.partition("## Keys")[2]] == []


def test_the_documented_example_is_accepted(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    _write(tmp_path, page.partition("```toml\n")[2].partition("```")[0])
    found = load_settings(tmp_path)
    assert found.for_verb("verify")["min_pairs"] == 4 and found.severity["optimizer/not-fused"].value == "low"


def test_all_that_is_wrong_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(
        tmp_path,
        "stepps = 3\nsteps = 0\nrules = ['nowhere']\n[verify]\nmin-pairs = -1\n[severity]\n'a/b' = 1\n",
    )
    monkeypatch.chdir(tmp_path)
    assert run(["analyze", "--json", "--trace", str(TRACE)]) == 2
    shown = capsys.readouterr()
    told = shown.err.splitlines()
    assert [line.split("autotune.toml:")[1].split(":")[0] for line in told[:-1]] == ["1", "2", "5", "7", "3"]
    assert told[-1] == "autotune: 5 errors in the configuration file [config-key-unknown]"
    assert len(json.loads(shown.out)["error"]["problems"]) == 5


@pytest.mark.parametrize(
    ("text", "arguments", "code"),
    [
        ("steps = \n", ["rules", "schema"], 0),  # no key is an option of this command
        ("steps = \n", ["doctor", "--help"], 0),
        ("steps = \n", ["facts", "padding"], 2),  # where the runs lie cannot be read
        ("steps = 0\nrunsdir = 'x'\n", ["facts", "padding"], 0),
        ("runs-dir = 3\n", ["facts", "padding"], 2),
        ("[verify]\nmin-pairs = -1\n", ["rules", "list"], 0),
        ("rules = 3\n", ["rules", "list"], 2),
    ],
)
def test_a_fault_stops_the_commands_it_concerns(
    text: str, arguments: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == code
