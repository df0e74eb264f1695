"""`autotune runs`: what has been run here."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.common import current_screen, output_options, runs_dir_option


@click.command("runs", epilog="Example: autotune runs --json")
@runs_dir_option
@output_options
def command(runs_dir: Path) -> None:
    """List the runs, newest last, with how far each came."""
    import shlex

    from autotune.errors import InputError
    from autotune.records.base import SCHEMA_VERSION
    from autotune.records.run import RunRecord
    from autotune.store import list_runs, read_record

    screen = current_screen()
    rows: list[dict[str, object]] = []
    for folder in list_runs(runs_dir):
        try:
            record = read_record(folder / "run.json", RunRecord)
        except InputError as fault:
            rows.append({"id": folder.name, "state": "unreadable", "error": str(fault)})
            continue
        rows.append(
            record.model_dump(include={"id", "kind", "created", "state", "command", "traces", "error"})
        )
    if screen.as_json:
        screen.json_value({"schema_version": SCHEMA_VERSION, "runs": rows})
        return
    if not rows:
        screen.answer(f"no runs in {runs_dir}; start with: autotune analyze -- COMMAND")
        return
    for row in rows:
        command_line = row.get("command") or row.get("traces") or []
        shown = shlex.join(str(part) for part in command_line) if isinstance(command_line, list) else ""
        screen.answer(f"{row['id']}  {row['state']:<10}  {shown or row.get('error') or ''}")
