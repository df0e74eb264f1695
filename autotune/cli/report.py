"""`autotune report`: the diagnosis of a run once more, on the screen or in the formats of other tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autotune.cli.common import (
    chosen_run,
    current_screen,
    fails_on,
    output_options,
    price_option,
    runs_dir_option,
)
from autotune.cli.complete import run_names
from autotune.cli.kinds import PathValue
from autotune.errors import Exit, InputError
from autotune.records.terms import SEVERITIES

if TYPE_CHECKING:
    from autotune.records.terms import Severity
    from autotune.report.sources import Sources

F = TypeVar("F", bound=Callable[..., Any])
_FILES = {
    "sarif": "SARIF 2.1.0, for code scanning and editors.",
    "markdown": "Markdown, for a pull request.",
    "openmetrics": "OpenMetrics text, for Prometheus.",
    "junit": "JUnit XML, for CI; findings below --fail-on do not fail.",
}


def _file_options(function: F) -> F:
    for name, means in reversed(_FILES.items()):
        function = click.option(
            f"--{name}",
            type=PathValue(dir_okay=False, allow_dash=True),
            metavar="FILE",
            help=f"{means} '-' is stdout.",
        )(function)
    return function


@click.command("report", epilog="Example: autotune report latest --markdown report.md --sarif findings.sarif")
@click.argument("run_name", metavar="[RUN]", required=False, shell_complete=run_names)
@click.option("--full", is_flag=True, help="Also cautions, all evidence and every rule by name.")
@_file_options
@click.option(
    "--html",
    "html_file",
    type=PathValue(dir_okay=False),
    metavar="FILE",
    help="One self-contained HTML page that loads nothing (extra: report).",
)
@click.option(
    "--against",
    metavar="RUN|TRACE",
    help="With --html: the other side of timeline and trace tables, a run or a trace of the changed job.",
)
@click.option("--mlflow", "mlflow_too", is_flag=True, help="Log the run to MLflow (extra: mlflow).")
@click.option("--wandb", "wandb_too", is_flag=True, help="Log the run to Weights & Biases (extra: wandb).")
@click.option(
    "--experiment",
    default="autotune",
    show_default=True,
    help="MLflow experiment or W&B project to log to.",
)
@click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES),
    help="Leave with exit code 1 when a finding is this severe or worse.",
)
@price_option
@runs_dir_option
@output_options
def command(
    run_name: str | None,
    full: bool,
    sarif: Path | None,
    markdown: Path | None,
    openmetrics: Path | None,
    junit: Path | None,
    html_file: Path | None,
    against: str | None,
    mlflow_too: bool,
    wandb_too: bool,
    experiment: str,
    fail_on: Severity | None,
    price_per_gpu_hour: float | None,
    runs_dir: Path,
) -> int:
    """Show the diagnosis of a run (the latest by default), and its ladder when it was optimized.

    With a file or a tracking service the report goes there instead of the screen.
    """
    from autotune.report.sources import sources_of

    screen = current_screen()
    if against is not None and html_file is None:
        raise InputError("--against has no effect without --html FILE", code="usage")
    folder = chosen_run(runs_dir, run_name)
    sources = sources_of(folder)
    files = {"sarif": sarif, "markdown": markdown, "openmetrics": openmetrics, "junit": junit}
    wanted = {kind: path for kind, path in files.items() if path is not None}
    if [str(path) for path in wanted.values()].count("-") > (0 if screen.as_json else 1):
        raise InputError("stdout holds one answer only", hint="name files instead of -", code="usage")
    written = _write(sources, wanted, fail_on, price_per_gpu_hour)
    if html_file is not None:
        written.append(_write_html(folder, html_file, run_name, against, runs_dir))
    if mlflow_too or wandb_too:
        from autotune.report.tracking import to_mlflow, to_wandb

        written += [to_mlflow(sources, experiment)] if mlflow_too else []
        written += [to_wandb(sources, experiment)] if wandb_too else []
    if written or wanted:
        _receipt(written)
    else:
        _show(sources, run_name, full, price_per_gpu_hour)
    return int(Exit.FINDINGS if fails_on(sources.diagnosis, fail_on) else Exit.DONE)


def _write(
    sources: Sources, wanted: dict[str, Path], fail_on: Severity | None, price: float | None
) -> list[str]:
    from autotune.store import write_text

    written = []
    for kind, path in wanted.items():
        text = _rendered(kind, sources, fail_on, price)
        if str(path) == "-":
            click.echo(text, nl=False)
            continue
        write_text(path, text)
        written.append(str(path))
    return written


def _rendered(kind: str, sources: Sources, fail_on: Severity | None, price: float | None) -> str:
    if kind == "sarif":
        from autotune.report.sarif import sarif

        return sarif(sources)
    if kind == "markdown":
        from autotune.report.markdown import markdown

        return markdown(sources, price)
    if kind == "openmetrics":
        from autotune.report.openmetrics import openmetrics

        return openmetrics(sources)
    from autotune.report.junit import junit

    return junit(sources, fail_on or "low")


def _write_html(folder: Path, target: Path, run_name: str | None, against: str | None, runs_dir: Path) -> str:
    from autotune.cli.diff import summary_of
    from autotune.report.html.gather import Other, trace_file_of
    from autotune.report.html.write import write_html

    other = None
    if against is not None:
        file = Path(against) if Path(against).is_file() else trace_file_of(chosen_run(runs_dir, against))
        other = Other(summary_of(against, runs_dir), file)
    write_html(folder, target, named=run_name or "", against=other)
    return str(target)


def _receipt(written: list[str]) -> None:
    from autotune.records.answers import Exported

    screen = current_screen()
    if screen.as_json:
        screen.document(Exported(written=written))
        return
    for what in written:
        screen.answer(f"wrote {what}")


def _show(sources: Sources, run_name: str | None, full: bool, price: float | None) -> None:
    from autotune.report.figures import price_per_hour
    from autotune.report.ladder import render_ladder
    from autotune.report.terminal import render_diagnosis
    from autotune.report.verdict import render_proof

    screen = current_screen()
    if screen.as_json:
        screen.document(sources.diagnosis)
        return
    screen.answer(
        render_diagnosis(
            sources.diagnosis,
            run_hint=f" {run_name}" if run_name else "",
            full=full,
            price_per_gpu_hour=price,
            job=sources.from_job,
        )
    )
    hourly = price_per_hour(sources.facts, price)
    if sources.ladder is None and sources.verdict is not None:
        screen.answer("\n" + render_proof(sources.verdict, sources.facts, hourly))
    if sources.ladder is not None:
        screen.answer("\n" + render_ladder(sources.ladder, price_per_hour=hourly))
