"""`autotune show RUN`: one run's card and files."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from autotune.cli.common import current_screen, output_options, runs_dir_option
from autotune.cli.complete import run_names


@click.command("show", epilog="Example: autotune show latest")
@click.argument("run_name", metavar="[RUN]", required=False, shell_complete=run_names)
@runs_dir_option
@output_options
def command(run_name: str | None, runs_dir: Path) -> None:
    """Show one run (the latest by default): what was asked, how far it came, where its records lie."""
    from autotune.records.answers import RunFiles
    from autotune.records.run import RunRecord
    from autotune.run_state import state_of
    from autotune.store import find_run, read_record

    screen = current_screen()
    folder = find_run(runs_dir, run_name)
    record = read_record(folder / "run.json", RunRecord)
    files = sorted(str(path.relative_to(folder)) for path in folder.glob("*") if path.is_file())
    launches = (
        sorted(path.name for path in (folder / "launches").glob("*"))
        if (folder / "launches").is_dir()
        else []
    )
    if screen.as_json:
        screen.document(
            RunFiles(run=record, state=state_of(record), folder=str(folder), files=files, launches=launches)
        )
        return
    screen.answer(f"{record.id}: {state_of(record)}, {record.created}")
    if record.command or not record.traces:
        screen.answer(f"command   {shlex.join(record.command)}")
    for number, trace in enumerate(record.traces):
        screen.answer(f"{'' if number else 'traces':<10}{trace}")
    if record.error:
        screen.answer(f"error     {record.error}")
    screen.answer(f"folder    {folder}")
    screen.answer(f"records   {', '.join(files)}")
    if launches:
        screen.answer(f"launches  {', '.join(launches)}")
