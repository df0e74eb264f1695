"""`autotune trace`: the tables of saved traces, without rules."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.common import current_screen, output_options
from autotune.cli.kinds import PathValue
from autotune.console import Screen


@click.command("trace", epilog="Example: autotune trace rank0.json.gz")
@click.argument("names", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--rows", type=click.IntRange(1, 1000), default=10, show_default=True, help="Rows of each table."
)
@click.option(
    "--parquet",
    type=PathValue(file_okay=False),
    metavar="DIRECTORY",
    help="Also write the events as tables, host.parquet and gpu.parquet, one folder per file of several.",
)
@output_options
def command(names: tuple[str, ...], rows: int, parquet: Path | None) -> None:
    """Show what saved profiler traces hold: top CPU ops, top GPU kernels, busy time, communication.

    FILE is a Kineto/Chrome trace (.json or .json.gz) or a folder of one file per rank. To see the timeline
    itself, open the file in ui.perfetto.dev.
    """
    from autotune.cli.analyze import trace_files
    from autotune.data import data_dir
    from autotune.report.tables import render_summary
    from autotune.trace.summary import summarize

    screen = current_screen()
    files, tables_dir = trace_files(names), data_dir("rules") / "_tables"
    summary = summarize(files, tables_dir=tables_dir)
    if parquet is not None:
        _export(screen, files, parquet, tables_dir)
    if screen.as_json:
        screen.document(summary)
    else:
        screen.answer(render_summary(summary, rows=rows))
        more = f" (and {len(files) - 1} more)" if len(files) > 1 else ""
        screen.answer(f"\nto see the timeline, open {files[0]}{more} in ui.perfetto.dev (it stays local)")


def _export(screen: Screen, files: list[Path], folder: Path, tables_dir: Path) -> None:
    from autotune.trace.export import export_parquet

    for number, path in enumerate(files):
        own = folder if len(files) == 1 else folder / f"{number:03d}-{path.name.split('.')[0]}"
        for written in export_parquet(path, own, tables_dir=tables_dir):
            screen.note(f"wrote {written}")
