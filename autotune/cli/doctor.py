"""`autotune doctor`: is everything here that autotune needs?"""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.common import current_screen, output_options, runs_dir_option
from autotune.errors import Exit


@click.command(
    "doctor",
    context_settings={"allow_interspersed_args": False},
    epilog="Example: autotune doctor -- python train.py",
)
@click.argument("command_line", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@runs_dir_option
@output_options
def command(command_line: tuple[str, ...], runs_dir: Path) -> int:
    """Check this machine and a job's interpreter for what autotune needs, without starting the job."""
    from autotune.analyze.doctor import examine

    screen = current_screen()
    report = examine(command_line, runs_dir, Path.cwd())
    if screen.as_json:
        screen.document(report)
    else:
        for check in report.checks:
            screen.answer(f"{check.state:<8} {check.name}: {check.detail}")
            if check.do:
                screen.answer(f"         {check.do}")
    return int(Exit.NOT_OBSERVED if report.has_problem else Exit.DONE)
