"""Steps shared by the verbs that start a user's job: the run folder, progress lines, the job's options."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autotune.cli.complete import rule_ids
from autotune.cli.kinds import NumberValue, PathValue
from autotune.console import Screen
from autotune.errors import AutotuneError, InputError, InterruptedRunError
from autotune.version import __version__

if TYPE_CHECKING:
    from autotune.analyze.diagnose import RuleSources
    from autotune.observe.progress import Progress
    from autotune.records.run import RunKind, RunRecord, RunState

F = TypeVar("F", bound=Callable[..., Any])


def job_options(function: F) -> F:
    """Options of every verb that starts a job."""
    for option in (
        click.option(
            "--allow-write",
            multiple=True,
            type=PathValue(),
            help="Let observed runs write here (repeatable).",
        ),
        click.option("--steps", type=click.IntRange(3, 10_000), help="Unprofiled steps to time."),
        click.option(
            "--first-step-timeout",
            type=NumberValue(min=1),
            default=900.0,
            show_default=True,
            help="Seconds to wait for the first training step.",
        ),
        click.option(
            "--rules",
            "rule_dirs",
            multiple=True,
            type=PathValue(exists=True, file_okay=False),
            help="A folder of your own rules (repeatable).",
        ),
        click.option(
            "--disable",
            multiple=True,
            shell_complete=rule_ids,
            help="A rule to leave out, or a pattern such as 'debug/*' (repeatable).",
        ),
    ):
        function = option(function)
    return function


def rule_sources(rule_dirs: Sequence[Path], disable: Sequence[str]) -> RuleSources:
    """The rule packs a verb works with."""
    from autotune.analyze.diagnose import RuleSources, SeverityChoice

    settings = click.get_current_context().ensure_object(dict).get("settings")
    chosen = settings.severity.items() if settings is not None else ()
    levels = tuple(SeverityChoice(rule, found.value, str(found.place)) for rule, found in chosen)
    return RuleSources(tuple(rule_dirs), tuple(disable), levels)


def start_run(
    runs_dir: Path,
    kind: RunKind,
    *,
    command: Sequence[str] = (),
    traces: Sequence[Path] = (),
    allow_write: Sequence[Path] = (),
    wheelhouse: Path | None = None,
    options: dict[str, str | int | float | bool | None] | None = None,
) -> tuple[Path, RunRecord]:
    """Make the run folder and its card. A command that cannot start leaves none."""
    from autotune.observe.command import read_command
    from autotune.observe.command_check import check_command
    from autotune.observe.secrets import hide_command
    from autotune.records.run import RunRecord
    from autotune.run_state import this_process
    from autotune.store import create_run, write_record

    if command:
        check_command(read_command(list(command), Path.cwd()))
    folder = create_run(runs_dir, _run_name(command, traces))
    record = RunRecord(
        id=folder.name,
        kind=kind,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        autotune=__version__,
        state="started",
        command=hide_command(command),
        cwd=str(Path.cwd()) if command else "",
        traces=[str(path.resolve()) for path in traces],
        allow_write=[str(path.resolve()) for path in allow_write],
        wheelhouse=str(wheelhouse.resolve()) if wheelhouse else None,
        options=options or {},
        process=this_process(),
    )
    write_record(folder / "run.json", record)
    return folder, record


def set_state(folder: Path, record: RunRecord, state: RunState, error: str | None = None) -> RunRecord:
    """Note how far the run came."""
    from autotune.store import write_record

    updated = record.model_copy(update={"state": state, "error": error})
    write_record(folder / "run.json", updated)
    return updated


def set_fault(folder: Path, record: RunRecord, fault: AutotuneError) -> RunRecord:
    """Note what ended the run: the user, or a fault."""
    state: RunState = "interrupted" if isinstance(fault, InterruptedRunError) else "failed"
    return set_state(folder, record, state, str(fault))


def require_command(command: Sequence[str], verb: str) -> None:
    """Raise InputError unless a command follows."""
    if not command:
        raise InputError(
            "no training command is given", hint=f"autotune {verb} -- python train.py", code="command-missing"
        )


def show_progress(screen: Screen, what: str) -> Callable[[Progress], None]:
    """Progress of one launch on the status line."""

    def show(progress: Progress) -> None:
        parts = [f"{what}: {progress.phase}"]
        if progress.step is not None:
            parts.append(f"step {progress.step}" + (f" of {progress.of}" if progress.of else ""))
        if progress.step_ms is not None:
            parts.append(f"{progress.step_ms:,.0f} ms a step")
        if progress.left_s is not None:
            parts.append(f"about {progress.left_s:.0f} s left")
        if progress.message:
            parts.append(progress.message)
        parts.append(f"{progress.elapsed_s:.0f} s")
        screen.status(", ".join(parts))

    return show


def _run_name(command: Sequence[str], traces: Sequence[Path]) -> str:
    for word in command:
        if word.endswith(".py"):
            return Path(word).stem
    if "-m" in command[:-1]:
        return command[list(command).index("-m") + 1].rsplit(".", 1)[-1]
    if command:
        return Path(command[0]).name
    return f"trace-{traces[0].name.split('.')[0]}" if traces else "run"
