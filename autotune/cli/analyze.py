"""`autotune analyze`: watch an unchanged job, or read saved traces, and say why it is slow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.common import (
    chosen_run,
    current_screen,
    fails_on,
    output_options,
    price_option,
    runs_dir_option,
)
from autotune.cli.jobs import (
    job_options,
    require_command,
    rule_sources,
    set_fault,
    set_state,
    show_progress,
    start_run,
)
from autotune.console import Screen
from autotune.errors import AutotuneError, Exit, InputError, JobFailedError
from autotune.records.terms import SEVERITIES

if TYPE_CHECKING:
    from autotune.analyze.diagnose import Diagnosed, RuleSources
    from autotune.analyze.watch import WatchOptions
    from autotune.records.observation import Observation


class _OptionsAfterTraces(click.Command):
    """Words after a job's command are the job's; after trace files they are options like any other."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, list(args))
        if not ctx.params.get("from_trace") or "--" in args:
            return rest
        ctx.params.clear()
        ctx.allow_interspersed_args = True
        return super().parse_args(ctx, args)


@click.command(
    "analyze",
    cls=_OptionsAfterTraces,
    context_settings={"allow_interspersed_args": False},
    epilog="Example: autotune analyze -- torchrun --nproc-per-node 2 train.py",
)
@click.argument("command_line", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--trace", "from_trace", is_flag=True, help="The arguments are saved traces or folders of them."
)
@click.option("--from", "from_run", metavar="RUN", help="Derive the diagnosis of this run again from disk.")
@click.option("--profile-ranks", default="0", show_default=True, help="Ranks to profile, comma separated.")
@click.option("--run-to-end", is_flag=True, help="Let the job finish and write where it always writes.")
@click.option("--watch", "whole_run", is_flag=True, help="Only times, over the whole run: autotune watch.")
@click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES),
    help="Leave with exit code 1 when a finding is this severe or worse.",
)
@price_option
@job_options
@runs_dir_option
@output_options
def command(
    command_line: tuple[str, ...],
    from_trace: bool,
    from_run: str | None,
    profile_ranks: str,
    run_to_end: bool,
    whole_run: bool,
    fail_on: str | None,
    price_per_gpu_hour: float | None,
    allow_write: tuple[Path, ...],
    steps: int | None,
    first_step_timeout: float,
    rule_dirs: tuple[Path, ...],
    disable: tuple[str, ...],
    runs_dir: Path,
) -> int:
    """Watch an unchanged training command for a few steps and say in one sentence why it is slow.

    The job runs as always, is stopped after the steps that are needed, and nothing of yours is written.
    With --trace the arguments are profiler traces (.json or .json.gz) that you already have.
    """
    from autotune.analyze.watch import WatchOptions

    screen = current_screen()
    if whole_run:
        from autotune.cli.watch import watch_to_the_end

        return watch_to_the_end(screen, runs_dir, command_line, from_run)
    rules = rule_sources(rule_dirs, disable)
    if from_run is not None:
        from autotune.analyze.diagnose import diagnose_again

        found = diagnose_again(chosen_run(runs_dir, from_run), rules)
        return _answer(screen, found, fail_on, price_per_gpu_hour)
    if from_trace:
        found = _from_traces(runs_dir, command_line, rules, screen)
        return _answer(screen, found, fail_on, price_per_gpu_hour)
    require_command(command_line, "analyze")
    options = WatchOptions(
        steps=steps or WatchOptions.steps,
        profile_ranks=_ranks(profile_ranks),
        run_to_end=run_to_end,
        allow_write=allow_write,
        echo=not screen.quiet,
        first_step_timeout_s=first_step_timeout,
    )
    folder, found = observe_and_diagnose(runs_dir, command_line, options, rules, screen)
    status = _answer(screen, found, fail_on, price_per_gpu_hour)
    raise_when_failed(folder, found.observation)
    return status


def observe_and_diagnose(
    runs_dir: Path,
    command_line: tuple[str, ...],
    options: WatchOptions,
    rules: RuleSources,
    screen: Screen,
    *,
    wheelhouse: Path | None = None,
) -> tuple[Path, Diagnosed]:
    """A new run: one observed launch and its diagnosis. The run's card says how far it came."""
    from autotune.analyze.ahead import reading_ahead
    from autotune.analyze.diagnose import diagnose_launch
    from autotune.analyze.watch import OBSERVE, JobStart, watch

    if rules.chosen:
        rules.check()
    folder, record = start_run(
        runs_dir, "job", command=command_line, allow_write=options.allow_write, wheelhouse=wheelhouse
    )
    screen.note(f"watching the job; the run is kept in {folder}")
    try:
        watch(
            JobStart(command=tuple(command_line), cwd=Path.cwd()),
            folder / "launches" / OBSERVE,
            options,
            reading_ahead(rules, show_progress(screen, "watching")),
        )
        record = set_state(folder, record, "observed")
        screen.status("reading the trace and matching the rules", new_phase=True)
        found = diagnose_launch(folder, OBSERVE, rules)
    except AutotuneError as fault:
        set_fault(folder, record, fault)
        raise
    set_state(folder, record, "diagnosed")
    return folder, found


def _from_traces(runs_dir: Path, names: tuple[str, ...], rules: RuleSources, screen: Screen) -> Diagnosed:
    from autotune.analyze.diagnose import diagnose_traces

    paths = trace_files(names)
    rules.check()
    folder, record = start_run(runs_dir, "trace", traces=paths)
    screen.status(f"reading {len(paths)} trace{'s' if len(paths) > 1 else ''}", new_phase=True)
    try:
        found = diagnose_traces(folder, paths, rules)
    except AutotuneError as fault:
        set_fault(folder, record, fault)
        raise
    set_state(folder, record, "diagnosed")
    return found


def trace_files(names: tuple[str, ...]) -> list[Path]:
    """Trace files named one by one or by folder. Raises InputError."""
    paths: list[Path] = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            inside = sorted(
                p
                for p in path.iterdir()
                if p.name.endswith((".json", ".gz"))
                and not p.name.startswith(".")  # macOS leaves ._NAME beside
            )
            if not inside:
                raise InputError(
                    "the folder holds no .json or .json.gz file", where=name, code="trace-missing"
                )
            paths += inside
        elif path.exists():
            paths.append(path)
        else:
            raise InputError("there is no such trace file", where=name, code="trace-missing")
    if not paths:
        raise InputError(
            "no trace file is given", hint="autotune analyze --trace rank0.json.gz", code="command-missing"
        )
    return paths


def _answer(screen: Screen, found: Diagnosed, fail_on: str | None, price: float | None = None) -> int:
    from autotune.report.terminal import render_diagnosis

    diagnosis = found.diagnosis
    if screen.as_json:
        screen.document(diagnosis)
    else:
        job = found.observation is not None
        screen.answer(render_diagnosis(diagnosis, price_per_gpu_hour=price, job=job))
    return int(Exit.FINDINGS if fails_on(diagnosis, fail_on) else Exit.DONE)


def raise_when_failed(folder: Path, observation: Observation | None) -> None:
    """The job crashed by itself after some steps: the diagnosis stands, card and exit code say so."""
    from autotune.analyze.watch import ran_out_of_memory
    from autotune.observe.outcome import failure_sentence, job_failed
    from autotune.records.run import RunRecord
    from autotune.store import read_record

    if observation is not None and job_failed(observation) and not ran_out_of_memory(observation):
        said = failure_sentence(observation)
        set_state(folder, read_record(folder / "run.json", RunRecord), "failed", said)
        raise JobFailedError(said, hint="the report covers the steps before that")


def _ranks(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(
            f"--profile-ranks takes numbers such as 0,1, not '{text}'", code="value-refused"
        ) from None
