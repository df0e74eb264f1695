"""Options and small steps that several verbs share."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from autotune.cli.kinds import NumberValue, PathValue
from autotune.console import Screen
from autotune.records.terms import SEVERITIES

if TYPE_CHECKING:
    from autotune.records.findings import Diagnosis

F = TypeVar("F", bound=Callable[..., Any])

JOB_COMMAND = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def output_options(function: F) -> F:
    """--json and --quiet, handed to the verb as `screen`."""

    def collect(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
        screen = ctx.ensure_object(dict).setdefault("screen", Screen())
        if param.name == "as_json":
            screen.as_json = value
        else:
            screen.quiet = value
        return value

    function = click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,  # a refused value of another option is then told as JSON too
        expose_value=False,
        callback=collect,
        help="Answer as JSON on stdout.",
    )(function)
    return click.option(
        "--quiet", "-q", is_flag=True, expose_value=False, callback=collect, help="No progress."
    )(function)


def runs_dir_option(function: F) -> F:
    """--runs-dir as `runs_dir`."""
    return click.option(
        "--runs-dir",
        type=PathValue(file_okay=False),
        default=Path("runs"),
        show_default=True,
        help="Folder that holds the runs.",
    )(function)


def price_option(function: F) -> F:
    """--price-per-gpu-hour as `price_per_gpu_hour`."""
    return click.option(
        "--price-per-gpu-hour",
        type=NumberValue(min=0),
        help="What one GPU costs an hour, in any currency: the report then tells the job's cost.",
    )(function)


def chosen_run(runs_dir: Path, name: str | None) -> Path:
    """The run that was named. The latest one is told by name, so that nobody takes it for another."""
    from autotune.store import find_run, list_runs

    folder = find_run(runs_dir, name)
    if name is None or name == "latest":
        newest = max((run.name for run in list_runs(runs_dir)), default=folder.name)
        passed_over = f"the newest run, {newest}, came to no diagnosis; this is {folder.name}"
        current_screen().note(passed_over if newest > folder.name else f"the latest run: {folder.name}")
    return folder


def refuse_existing(output: Path, overwrite: bool) -> None:
    """Raise InputError where a file would be replaced that nobody said may go."""
    from autotune.errors import InputError

    if output.exists() and not overwrite:
        raise InputError(
            "this file is there already",
            where=str(output),
            hint="--overwrite replaces it, -o takes another name",
            code="file-in-the-way",
        )


def options_again(without: Collection[str]) -> list[str]:
    """The options that this call was given, as one types them again, but those of the names in `without`."""
    ctx = click.get_current_context()
    words: list[str] = []
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if not isinstance(param, click.Option) or param.name in without or not given:
            continue
        if param.name not in ctx.params:  # of the screen
            continue
        value, name = ctx.params[param.name], max(param.opts, key=len)
        if param.is_flag:
            words += [name]
            continue
        for one in value if param.multiple else [value]:
            words += [name, f"{one:g}" if isinstance(one, float) else str(one)]
    return words


def fails_on(diagnosis: Diagnosis, severity: str | None) -> bool:
    """Some finding is as severe as --fail-on says, or worse."""
    if severity is None:
        return False
    levels: tuple[str, ...] = SEVERITIES
    limit = levels.index(severity)
    return any(levels.index(finding.severity) >= limit for finding in diagnosis.findings)


def current_screen() -> Screen:
    """The screen of the running verb."""
    found = click.get_current_context().ensure_object(dict).setdefault("screen", Screen())
    assert isinstance(found, Screen)
    return found
