"""`autotune watch`: stay with a whole run, hours if need be, and report what a short look misses."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.common import chosen_run, current_screen, output_options, runs_dir_option
from autotune.cli.jobs import require_command, set_fault, set_state, start_run
from autotune.console import Screen
from autotune.errors import AutotuneError, Exit, JobFailedError, NotObservedError


@click.command(
    "watch",
    context_settings={"allow_interspersed_args": False},
    epilog="Example: autotune watch -- torchrun --nproc-per-node 8 train.py",
)
@click.argument("command_line", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--from", "from_run", metavar="RUN", help="Report a watched run again from disk.")
@runs_dir_option
@output_options
def command(command_line: tuple[str, ...], from_run: str | None, runs_dir: Path) -> int:
    """Run a training command to its end and report drift, pauses, throttling and stragglers.

    Only times are taken. The job is left alone: it writes where it always writes, its output goes to the
    same streams, and no deadline ends it. The report goes to stderr, or with --json to stdout.
    """
    return watch_to_the_end(current_screen(), runs_dir, command_line, from_run)


def watch_to_the_end(
    screen: Screen, runs_dir: Path, command_line: tuple[str, ...], from_run: str | None = None
) -> int:
    """The verb's work, also of `analyze --watch`. Raises AutotuneError."""
    from autotune.analyze.endurance import watch_report
    from autotune.observe.launch import launch
    from autotune.observe.outcome import failure_sentence, job_failed
    from autotune.observe.spec import LaunchSpec
    from autotune.records.observation import Observation
    from autotune.store import read_record, write_record

    if from_run is not None:
        folder = chosen_run(runs_dir, from_run)
        observation = read_record(folder / "launches" / "watch" / "observation.json", Observation)
        _show(screen, watch_report(observation))
        return int(Exit.DONE)
    require_command(command_line, "watch")
    folder, record = start_run(runs_dir, "job", command=command_line)
    screen.note(f"watching the whole run; what is recorded is kept in {folder}")
    spec = LaunchSpec(
        command=command_line,
        cwd=Path.cwd(),
        folder=folder / "launches" / "watch",
        mode="watch",
        stop="never",
        protect=False,
        echo="stderr" if screen.as_json else "both",
    )
    try:
        observation = launch(spec)
    except AutotuneError as fault:
        set_fault(folder, record, fault)
        raise
    report = watch_report(observation)
    write_record(folder / "watch.json", report)
    _show(screen, report)
    if job_failed(observation):
        said = failure_sentence(observation)
        set_state(folder, record, "failed", said)
        raise JobFailedError(said, where=str(folder / "launches" / "watch" / "train.log"))
    if not report.steps:
        unseen = NotObservedError(
            "the job ended without a training step", hint="is this the command that trains?"
        )
        set_fault(folder, record, unseen)
        raise unseen
    set_state(folder, record, "observed")
    return int(Exit.DONE)


def _show(screen: Screen, report: object) -> None:
    from autotune.records.watch import WatchReport
    from autotune.report.watch import render_watch

    assert isinstance(report, WatchReport)
    if screen.as_json:
        screen.document(report)
    else:
        click.echo("\n" + render_watch(report), err=True)
