"""`autotune trace`: the tables of saved traces, without rules."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.common import current_screen, output_options


@click.command("trace", epilog="Example: autotune trace rank0.json.gz")
@click.argument("names", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--rows", type=click.IntRange(1, 1000), default=10, show_default=True, help="Rows of each table."
)
@output_options
def command(names: tuple[str, ...], rows: int) -> None:
    """Show what saved profiler traces hold: top CPU ops, top GPU kernels, busy time, communication.

    FILE is a Kineto/Chrome trace (.json or .json.gz) or a folder of one file per rank. To see the timeline
    itself, open the file in ui.perfetto.dev.
    """
    from autotune.cli.analyze import trace_files
    from autotune.data import data_dir
    from autotune.report.tables import render_summary
    from autotune.trace.summary import summarize

    screen = current_screen()
    summary = summarize([Path(path) for path in trace_files(names)], tables_dir=data_dir("rules") / "_tables")
    if screen.as_json:
        screen.document(summary)
    else:
        screen.answer(render_summary(summary, rows=rows))
        files = trace_files(names)
        more = f" (and {len(files) - 1} more)" if len(files) > 1 else ""
        screen.answer(f"\nto see the timeline, open {files[0]}{more} in ui.perfetto.dev (it stays local)")
