"""`autotune report`: the diagnosis of a run once more."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.common import current_screen, output_options, runs_dir_option


@click.command("report", epilog="Example: autotune report latest")
@click.argument("run_name", metavar="[RUN]", required=False)
@runs_dir_option
@output_options
def command(run_name: str | None, runs_dir: Path) -> None:
    """Show the diagnosis of a run (the latest by default), and its ladder when it was optimized."""
    from autotune.records.findings import Diagnosis
    from autotune.records.ladder import Ladder
    from autotune.report.ladder import render_ladder
    from autotune.report.terminal import render_diagnosis
    from autotune.store import find_run, read_record

    screen = current_screen()
    folder = find_run(runs_dir, run_name)
    diagnosis = read_record(folder / "diagnosis.json", Diagnosis)
    if screen.as_json:
        screen.document(diagnosis)
        return
    screen.answer(render_diagnosis(diagnosis, run_hint=f" {run_name}" if run_name else ""))
    if (folder / "ladder.json").exists():
        screen.answer("\n" + render_ladder(read_record(folder / "ladder.json", Ladder)))
