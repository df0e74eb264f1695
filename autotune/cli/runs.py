"""`autotune runs`: what has been run here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.common import current_screen, output_options, runs_dir_option

if TYPE_CHECKING:
    from autotune.records.answers import RunRow


@click.command("runs", epilog="Example: autotune runs --json")
@runs_dir_option
@output_options
def command(runs_dir: Path) -> None:
    """List the runs, newest last, with how far each came."""
    from autotune.records.answers import RunList
    from autotune.store import list_runs

    screen = current_screen()
    rows = [_row(folder) for folder in list_runs(runs_dir)]
    if screen.as_json:
        screen.document(RunList(runs=rows))
        return
    if not rows:
        screen.answer(f"no runs in {runs_dir}; start with: autotune analyze -- COMMAND")
        return
    width = max(len(row.id) for row in rows)
    for row in rows:
        screen.answer(f"{row.id:<{width}}  {row.state:<11}  {_asked(row) or row.error or ''}")


def _asked(row: RunRow) -> str:
    """The command, or the first of the traces as one would name it here."""
    import shlex

    if row.command or not row.traces:
        return shlex.join(row.command)
    path, here = Path(row.traces[0]), Path.cwd()
    shown = str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
    more = len(row.traces) - 1
    return f"{shown} and {more} more" if more else shown


def _row(folder: Path) -> RunRow:
    from autotune.errors import AutotuneError
    from autotune.records.answers import RunRow
    from autotune.records.run import RunRecord
    from autotune.run_state import state_of
    from autotune.store import read_record

    try:
        record = read_record(folder / "run.json", RunRecord)
    except AutotuneError as fault:
        return RunRow(id=folder.name, state="unreadable", error=str(fault))
    return RunRow(
        id=folder.name,  # a copied folder has another name than the run it was
        state=state_of(record),
        kind=record.kind,
        created=record.created,
        command=record.command,
        traces=record.traces,
        error=record.error,
    )
