"""`autotune report`: the diagnosis of a run once more."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.common import current_screen, output_options, runs_dir_option
from autotune.errors import InputError


@click.command("report", epilog="Example: autotune report latest")
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write one self-contained HTML file instead (needs the extra [report]).",
)
@click.option(
    "--against",
    metavar="RUN|TRACE",
    help="With --html: the other side of the trace tables, a run or a trace of the job after a change.",
)
@runs_dir_option
@output_options
def command(run_name: str | None, html_file: Path | None, against: str | None, runs_dir: Path) -> None:
    """Show the diagnosis of a run (the latest by default), and its ladder when it was optimized."""
    from autotune.records.findings import Diagnosis
    from autotune.records.ladder import Ladder
    from autotune.report.ladder import render_ladder
    from autotune.report.terminal import render_diagnosis
    from autotune.store import find_run, read_record

    screen = current_screen()
    if against is not None and html_file is None:
        raise InputError("--against has no effect without --html FILE")
    folder = find_run(runs_dir, run_name)
    if html_file is not None:
        _write_html(folder, html_file, run_name, against, runs_dir)
        return
    diagnosis = read_record(folder / "diagnosis.json", Diagnosis)
    if screen.as_json:
        screen.document(diagnosis)
        return
    screen.answer(render_diagnosis(diagnosis, run_hint=f" {run_name}" if run_name else ""))
    if (folder / "ladder.json").exists():
        screen.answer("\n" + render_ladder(read_record(folder / "ladder.json", Ladder)))


def _write_html(
    folder: Path, target: Path, run_name: str | None, against: str | None, runs_dir: Path
) -> None:
    from autotune.cli.diff import summary_of
    from autotune.records.base import SCHEMA_VERSION
    from autotune.report.html.write import write_html

    screen = current_screen()
    other = summary_of(against, runs_dir) if against is not None else None
    size = write_html(folder, target, named=run_name or "", against=other)
    if screen.as_json:
        screen.json_value({"schema_version": SCHEMA_VERSION, "html": str(target), "bytes": size})
    else:
        screen.answer(
            f"wrote {target} ({size / 1e6:.1f} MB): one file, nothing to load, opens in any browser"
        )
