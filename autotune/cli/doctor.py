"""`autotune doctor`: is everything here that autotune needs?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.common import current_screen, output_options, runs_dir_option
from autotune.errors import Exit, InputError

if TYPE_CHECKING:
    from autotune.records.doctor import Check


@click.command(
    "doctor",
    context_settings={"allow_interspersed_args": False},
    epilog="Example: autotune doctor -- python train.py",
)
@click.argument("command_line", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--fast-paths",
    "model",
    help="Also run every fast path of this model (folder, config.json or hub id) against float32.",
)
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float16", "float32"]),
    default="bfloat16",
    show_default=True,
    help="What --fast-paths computes in.",
)
@runs_dir_option
@output_options
def command(command_line: tuple[str, ...], model: str | None, dtype: str, runs_dir: Path) -> int:
    """Check this machine and a job's interpreter for what autotune needs, without starting the job."""
    from autotune.analyze.doctor import examine

    screen = current_screen()
    report = examine(command_line, runs_dir, Path.cwd())
    if model is not None:
        more = _fast_paths(command_line, model, dtype)
        report = report.model_copy(update={"checks": [*report.checks, *more]})
    if screen.as_json:
        screen.document(report)
    else:
        for check in report.checks:
            screen.answer(f"{check.state:<8} {check.name}: {check.detail}")
            if check.do:
                screen.answer(f"         {check.do}")
    return int(Exit.NOT_OBSERVED if report.has_problem else Exit.DONE)


def _fast_paths(command_line: tuple[str, ...], model: str, dtype: str) -> list[Check]:
    from autotune.apply.fast_paths import prove, sizes_of
    from autotune.apply.generate import find_model
    from autotune.observe.command import read_command

    source = find_model(model)
    if source.config is None:
        raise InputError(
            "the sizes of this model are not known here", where=model, hint="name its folder or config.json"
        )
    interpreter = read_command(command_line, Path.cwd()).interpreter if command_line else None
    return prove(interpreter or "python", sizes_of(source.config, dtype))
