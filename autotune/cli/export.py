"""`autotune export`: a run as one archive."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.common import chosen_run, current_screen, output_options, runs_dir_option
from autotune.cli.kinds import PathValue


@click.command("export", epilog="Example: autotune export latest --redact")
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option(
    "--redact", is_flag=True, help="Records only, without paths and arguments: for a report to others."
)
@click.option("--out", type=PathValue(dir_okay=False), help="The archive to write.")
@runs_dir_option
@output_options
def command(run_name: str | None, redact: bool, out: Path | None, runs_dir: Path) -> None:
    """Pack a run (the latest by default) into a .tar.gz archive.

    No run holds credentials, values of the environment, or this machine's name. With --redact the archive
    has no paths, no arguments, no output of the job and none of its code either.
    """
    from autotune.report.archive import pack

    screen = current_screen()
    run = chosen_run(runs_dir, run_name)
    target = out or Path(f"{run.name}{'-redacted' if redact else ''}.tar.gz")
    files = pack(run, target, redact=redact)
    if screen.as_json:
        screen.json_value({"schema_version": 1, "archive": str(target), "files": files, "redacted": redact})
    else:
        screen.answer(f"{target}: {files} files")
