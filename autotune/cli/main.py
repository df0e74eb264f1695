"""The command line: verbs loaded when they are called, faults turned into one line and an exit code."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.faults import asks_for_json, last_words, silence_stdout, tell, told
from autotune.cli.groups import SuggestingGroup
from autotune.errors import Exit, InputError
from autotune.version import __version__

if TYPE_CHECKING:
    from autotune.settings import SettingFault, Settings

# verb -> (module, one line of help); the module defines a click command called `command`
_VERBS: dict[str, tuple[str, str]] = {
    "optimize": ("autotune.cli.optimize", "Find, apply and prove what makes a training command faster."),
    "analyze": ("autotune.cli.analyze", "Watch an unchanged training command and say why it is slow."),
    "watch": ("autotune.cli.watch", "Stay with a whole run and report drift, pauses and stragglers."),
    "apply": ("autotune.cli.apply", "Show, write or take back the patched copy of a run."),
    "generate": (
        "autotune.cli.generate",
        "Write an FSDP2 training script for a model and data, without a run.",
    ),
    "verify": ("autotune.cli.verify", "Rerun the original and the patched job and compare speed and loss."),
    "report": ("autotune.cli.report", "Show the diagnosis of a run again."),
    "trace": ("autotune.cli.trace", "Tables of saved profiler traces, without rules."),
    "diff": ("autotune.cli.diff", "Compare two runs or traces: the same tables before and after."),
    "runs": ("autotune.cli.runs", "List the runs."),
    "show": ("autotune.cli.show", "Show one run: its records and where they lie."),
    "export": ("autotune.cli.export", "Pack a run into one archive, on request without paths and arguments."),
    "rules": ("autotune.cli.rules", "List, explain, lint and test the rules."),
    "explain": ("autotune.cli.explain", "Explain an error code, an exit code or a rule."),
    "facts": ("autotune.cli.facts", "List the facts that rules can use."),
    "config": ("autotune.cli.config", "Show the configuration and where each value comes from."),
    "schema": ("autotune.cli.schema", "Print the JSON Schema of an answer of --json or of a record."),
    "completion": ("autotune.cli.completion", "Print the completion script of your shell."),
    "mcp": ("autotune.cli.mcp", "Serve the verbs to a client of the Model Context Protocol."),
    "doctor": ("autotune.cli.doctor", "Check this machine and a job's interpreter for what autotune needs."),
}


class _Verbs(SuggestingGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _VERBS.get(cmd_name)
        if entry is None:
            return None
        command = importlib.import_module(entry[0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _VERBS.items()])


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="autotune")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Put autotune in front of a training command to learn why it is slow and to get a faster, proven copy.

    \b
    autotune optimize -- python train.py --epochs 1
    autotune analyze  -- torchrun --nproc-per-node 2 train.py
    """
    if ctx.invoked_subcommand not in _WITHOUT_SETTINGS and not _asks_for_help(ctx):
        _apply_settings(ctx)


# These work, and help, also where the configuration file is broken.
_WITHOUT_SETTINGS = ("completion", "config", "explain", "schema")


def _asks_for_help(ctx: click.Context) -> bool:
    own = list(ctx.ensure_object(dict).get("arguments", ()))
    own = own[: own.index("--")] if "--" in own else own
    return "--help" in own or "-h" in own


def _apply_settings(ctx: click.Context) -> None:
    """Values of the configuration file become the defaults of the verb's options."""
    folder = Path.cwd()
    if not any(
        os.path.lexists(place / name)
        for place in (folder, *folder.parents)
        for name in ("autotune.toml", "pyproject.toml")
    ):
        return
    verb = ctx.invoked_subcommand or ""
    options = _options(ctx, verb)
    from autotune.settings import KEYS, read_settings, refuse

    keys = [key for key in KEYS if f"--{key}" in options]
    if not keys:
        return  # nothing in the file is about this verb
    settings = read_settings(folder)
    ctx.obj["settings"] = settings
    faults = [*settings.faults, *_refused_values(ctx, verb, options, settings)]
    if any(entry.concerns(verb, keys) for entry in faults):
        refuse(faults)
    values: dict[str, Any] = settings.for_verb(verb)
    inner = dict.fromkeys(("list", "explain", "lint", "test", "new", "calibration"), values)
    ctx.default_map = {verb: inner if verb == "rules" else values}


def _options(ctx: click.Context, verb: str) -> dict[str, click.Parameter]:
    """The options of the verb, or of the command of its group that is called."""
    command = cli.get_command(ctx, verb)
    if isinstance(command, click.Group):
        words = [word for word in ctx.ensure_object(dict).get("arguments", ()) if not word.startswith("-")]
        command = command.commands.get(words[1]) if len(words) > 1 else None
    return {name: parameter for parameter in (command.params if command else ()) for name in parameter.opts}


def _refused_values(
    ctx: click.Context, verb: str, options: dict[str, click.Parameter], settings: Settings
) -> list[SettingFault]:
    """What the verb's options would refuse, or would not even have, with the file's line."""
    from autotune.settings import SettingFault

    faults = []
    for name, found in settings.values.items():
        table, dot, key = name.rpartition(".")
        if dot and table != verb:
            continue
        option = options.get(f"--{key}")
        if option is None:
            if not dot:
                continue  # a common key, for the verbs that have it
            fault = InputError(
                f"autotune {verb} has no option '{key}'",
                where=found.place,
                hint=f"autotune {verb} --help lists them",
                code="config-key-unknown",
            )
            faults.append(SettingFault(fault, key, table))
            continue
        try:
            for value in found.value if isinstance(found.value, list) else [found.value]:
                option.type.convert(value, option, ctx)
        except click.BadParameter as refused:
            what = f"{key}: {refused.message.rstrip('.')}"
            fault = InputError(what, where=found.place, code="config-value-refused")
            faults.append(SettingFault(fault, key, table))
    return faults


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit code and never raises."""
    return last_words(_run(arguments))


def _run(arguments: list[str]) -> int:
    state: dict[str, Any] = {
        "arguments": arguments
    }  # later also the verb's screen, once its options were read
    try:
        outcome = cli.main(args=arguments, prog_name="autotune", standalone_mode=False, obj=state)
    except click.exceptions.Exit as leave:
        return int(leave.exit_code)
    except (BrokenPipeError, SystemExit):  # click leaves so when the reader of a pipe has gone
        silence_stdout()
        return int(Exit.DONE)
    except (Exception, KeyboardInterrupt) as fault:
        if isinstance(fault, click.UsageError) and _is_help(fault):
            click.echo(fault.format_message())
            return int(Exit.DONE)
        return tell(told(fault), as_json=_wants_document(state, arguments))
    return int(outcome) if isinstance(outcome, int) else int(Exit.DONE)


def _is_help(fault: click.UsageError) -> bool:
    """A group without a command is a question, not a mistake (click 8.2 raises it as an error)."""
    return type(fault).__name__ == "NoArgsIsHelpError"


def _wants_document(state: dict[str, Any], arguments: list[str]) -> bool:
    """With --json stdout holds one document: the fault, unless the answer was printed before it."""
    screen = state.get("screen")
    if screen is None:
        return asks_for_json(arguments)
    return bool(screen.as_json and not screen.answered)
