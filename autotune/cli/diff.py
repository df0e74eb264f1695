"""`autotune diff A B`: the same tables of two runs or traces, before and after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.common import chosen_run, current_screen, output_options, runs_dir_option
from autotune.errors import InputError

if TYPE_CHECKING:
    from autotune.records.trace import TraceSummary


@click.command("diff", epilog="Example: autotune diff before.json.gz after.json.gz")
@click.argument("before")
@click.argument("after")
@click.option(
    "--rows", type=click.IntRange(1, 1000), default=8, show_default=True, help="Rows of each table."
)
@runs_dir_option
@output_options
def command(before: str, after: str, rows: int, runs_dir: Path) -> None:
    """Compare two traces or two runs: totals, top CPU ops and top GPU kernels side by side."""
    from autotune.report.tables import render_diff
    from autotune.trace.diff import diff

    screen = current_screen()
    result = diff(summary_of(before, runs_dir), summary_of(after, runs_dir))
    if screen.as_json:
        screen.document(result)
    else:
        screen.answer(render_diff(result, rows=rows))


def summary_of(name: str, runs_dir: Path) -> TraceSummary:
    """The summary of a trace file, a folder of traces, or a run."""
    from autotune.data import data_dir
    from autotune.records.trace import TraceSummary
    from autotune.store import read_record
    from autotune.trace.summary import summarize

    path = Path(name)
    if path.is_file():
        return summarize([path], tables_dir=data_dir("rules") / "_tables")
    if path.is_dir() and not (path / "run.json").exists():
        from autotune.cli.analyze import trace_files

        return summarize(trace_files((name,)), tables_dir=data_dir("rules") / "_tables")
    if path.suffix in (".json", ".gz"):
        raise InputError("there is no such trace file", where=name, code="trace-missing")
    folder = chosen_run(runs_dir, name)
    found = [folder / "trace_summary.json", folder / "launches" / "observe" / "trace_summary.json"]
    for candidate in found:
        if candidate.exists():
            return read_record(candidate, TraceSummary)
    raise InputError("this run has no trace to compare", where=folder.name, code="run-without-trace")
