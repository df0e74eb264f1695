"""Help where one stands: examples, suggestions, schemas, completion, states, patterns that fit nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import jsonschema
import pytest

from autotune.cli.choices import choice_of
from autotune.cli.main import cli, run
from autotune.cli.schema import schema_of, schemas
from autotune.cli.verify import time_left_s
from autotune.errors import InputError
from autotune.records.run import RunRecord
from autotune.run_state import _started, state_of, this_process
from autotune.store import write_record


def _verbs() -> Iterator[tuple[str, ...]]:
    context = click.Context(cli)
    for verb in cli.list_commands(context):
        command = cli.get_command(context, verb)
        yield (verb,)
        if isinstance(command, click.Group):
            yield from ((verb, name) for name in command.list_commands(context))


@pytest.mark.parametrize("verb", [v for v in _verbs() if v != ("rules", "pages")], ids=" ".join)
def test_every_help_has_an_example_that_names_the_verb(
    verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    example = shown.partition("Example: ")[2]
    assert example.startswith(f"autotune {verb[0]}")
    words = [word for word in example.split(" -- ")[0].split() if word.startswith("--")]
    command = cli.get_command(click.Context(cli), verb[0])
    for name in verb[1:]:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
    assert command is not None
    if not isinstance(command, click.Group):
        assert [w for w in words if w not in {o for p in command.params for o in p.opts}] == []


def test_every_verb_answers_as_json() -> None:
    without = []
    for verb in _verbs():
        command = cli.get_command(click.Context(cli), verb[0])
        for name in verb[1:]:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), name)
        assert command is not None
        if not isinstance(command, click.Group) and not command.hidden:
            without += [verb] if "--json" not in {o for p in command.params for o in p.opts} else []
    assert without == [("mcp",)], "a server speaks its own protocol"


@pytest.mark.parametrize("group", ["rules", "config"])
def test_a_group_alone_prints_its_help(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([group]) == 0
    shown = capsys.readouterr()
    assert "Commands:" in shown.out and shown.err == ""


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["optimise"], "'optimize'"),
        (["rules", "explian"], "'explain'"),
        (["report", "--jsno"], "--json"),
        (["rules", "explain", "attention/eagre"], "'attention/eager'"),
        (["schema", "diagnossis"], "'diagnosis'"),
        (["rules", "list", "--disabel", "x"], "[option-unknown]"),
    ],
)
def test_the_nearest_name_is_suggested(
    arguments: list[str], near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert near in capsys.readouterr().err


def test_patterns_that_fit_no_rule_are_called_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--select 'kernel/\*' fits no rule; did you mean 'kernels/\*'"):
        choice_of(("kernel/*",), (), False, run=None)
    with pytest.raises(
        InputError, match="--exclude 'attention/eagr' fits no rule; did you mean 'attention/eager'"
    ):
        choice_of((), ("attention/eagr",), False, run=None)
    assert choice_of(("kernels/*",), ("attention/eager",), False, run=None).select == ("kernels/*",)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.yaml").write_text("id: data/mine\n")
    assert choice_of(("data/mine",), (), False, run=None, rule_dirs=[tmp_path]).select == ("data/mine",)


def test_every_schema_is_a_schema_and_fits_its_answers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, document in schemas().items():
        jsonschema.Draft202012Validator.check_schema(schema_of(document))
        assert name.replace("-", "").isalnum()
    for verb, name in (
        (["runs", "--runs-dir", str(tmp_path)], "run-list"),
        (["facts", "padding"], "fact-list"),
        (["rules", "list"], "rule-list"),
        (["rules", "explain", "attention/eager"], "rule-explanation"),
        (["rules", "calibration", "--runs-dir", str(tmp_path)], "calibration"),
        (["explain", "5"], "code-pages"),
        (["config", "show"], "config-shown"),
        (["completion", "zsh"], "completion-answer"),
        (["schema"], "schema-names"),
        (["report", "nothing"], "fault-report"),
    ):
        run([*verb, "--json"])
        answer = json.loads(capsys.readouterr().out)
        jsonschema.Draft202012Validator(schema_of(schemas()[name])).validate(answer)
        assert run(["schema", name]) == 0
        assert json.loads(capsys.readouterr().out) == schema_of(schemas()[name])


def test_a_schema_refuses_what_is_no_answer() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema_version": 2, "runs": []}, schema_of(schemas()["run-list"]))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema_version": 1, "runs": [], "more": 1}, schema_of(schemas()["run-list"]))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_parse(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    assert "_AUTOTUNE_COMPLETE" in script.read_text()
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(script)], check=True)


def test_completion_completes_verbs_and_options() -> None:
    def complete(*words: str) -> list[str]:
        env = {
            **os.environ, "_AUTOTUNE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
        }  # fmt: skip
        command = [sys.executable, "-m", "autotune"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert complete("autotune", "opt") == ["optimize"]
    assert complete("autotune", "apply", "--select", "attention/ea") == ["attention/eager"]
    assert complete("autotune", "report", "late") == ["latest"]
    assert "--price-per-gpu-hour" in complete("autotune", "report", "--pr")


def _card(**changes: object) -> RunRecord:
    card = RunRecord(
        id="at-20260101-000000-x", kind="job", created="2026-01-01T00:00:00Z", autotune="0.1.0",
        state="started", command=["python", "x.py"], process=this_process(),
    )  # fmt: skip
    return card.model_copy(update=changes)


def test_a_killed_run_is_interrupted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = _started(child.pid)
        owner = this_process().model_copy(update={"pid": child.pid, "started": started})
        assert state_of(_card(process=owner)) == "started"
        child.kill()
        child.wait()
    assert state_of(_card(process=owner)) == "interrupted"
    assert state_of(_card(process=owner, state="diagnosed")) == "diagnosed"
    assert state_of(_card(process=owner.model_copy(update={"host": "elsewhere"}))) == "started"
    recycled = this_process().model_copy(update={"started": "another:1"})
    assert state_of(_card(process=recycled)) == "interrupted", "the number belongs to another process by now"
    (tmp_path / "at-20260101-000000-x").mkdir()
    write_record(tmp_path / "at-20260101-000000-x" / "run.json", _card(process=owner))
    assert run(["runs", "--runs-dir", str(tmp_path)]) == 0
    assert "interrupted" in capsys.readouterr().out


def test_time_left_follows_the_pace_so_far() -> None:
    assert time_left_s(10.0, 0, 8) is None
    assert time_left_s(30.0, 3, 8) == pytest.approx(50.0)
    assert time_left_s(80.0, 8, 8) == 0.0
