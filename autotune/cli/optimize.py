"""`autotune optimize`: the whole loop from an unchanged command to a proven, faster copy."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from autotune.cli.analyze import observe_and_diagnose, raise_when_failed
from autotune.cli.choices import choice_of, choice_options, refuse_pairs
from autotune.cli.common import (
    chosen_run,
    current_screen,
    options_again,
    output_options,
    price_option,
    runs_dir_option,
)
from autotune.cli.jobs import job_options, require_command, rule_sources, set_fault, set_state
from autotune.cli.kinds import NumberValue
from autotune.cli.launcher import launcher_of, launcher_options
from autotune.errors import AutotuneError, Exit, InputError, InterruptedRunError


@click.command(
    "optimize",
    context_settings={"allow_interspersed_args": False},
    epilog="Example: autotune optimize --max-minutes 30 -- python train.py --epochs 1",
)
@click.argument("command_line", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--resume", "resume", metavar="RUN", help="Go on with an interrupted run; nothing is repeated.")
@click.option("--max-trials", type=click.IntRange(min=1), help="Trials at most.")
@click.option(
    "--max-minutes",
    type=NumberValue(min=0.1),
    help="Minutes of trials at most; the first look is not counted.",
)
@click.option("--min-pairs", type=click.IntRange(2, 50), default=2, show_default=True, help="Pairs at least.")
@click.option("--max-pairs", type=click.IntRange(2, 50), default=5, show_default=True, help="Pairs at most.")
@click.option(
    "--parity-steps",
    type=click.IntRange(5, 10_000),
    default=8,
    show_default=True,
    help="Steps whose training is compared.",
)
@click.option("--min-gain", type=NumberValue(0, 100), default=3.0, show_default=True, help="Percent.")
@click.option(
    "--memory-limit",
    type=NumberValue(min=0.001),
    metavar="GIB",
    help="Memory a rank may use in the memory plan; by default its device, or its share of the host.",
)
@price_option
@launcher_options
@choice_options
@job_options
@runs_dir_option
@output_options
def command(
    command_line: tuple[str, ...],
    resume: str | None,
    max_trials: int | None,
    max_minutes: float | None,
    min_pairs: int,
    max_pairs: int,
    parity_steps: int,
    min_gain: float,
    memory_limit: float | None,
    launcher: str,
    slurm_options: tuple[str, ...],
    price_per_gpu_hour: float | None,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    unsafe: bool,
    wheelhouse: Path | None,
    allow_write: tuple[Path, ...],
    steps: int | None,
    first_step_timeout: float,
    rule_dirs: tuple[Path, ...],
    disable: tuple[str, ...],
    runs_dir: Path,
) -> int:
    """Watch the job, apply the best changes to a copy, prove each, keep what is faster and equal, look again.

    Your script, environment and outputs stay as they are; the result lies in the run folder until
    `autotune apply --write` puts it beside the original.
    """
    from autotune.analyze.diagnose import diagnose_again
    from autotune.analyze.watch import WatchOptions
    from autotune.optimize.loop import OptimizeLoop
    from autotune.optimize.options import LoopOptions
    from autotune.optimize.patched import refuse_changed_files
    from autotune.records.run import RunRecord
    from autotune.report.figures import price_per_hour
    from autotune.report.ladder import render_ladder
    from autotune.report.terminal import render_diagnosis
    from autotune.run_state import this_process
    from autotune.sole_user import sole_user
    from autotune.store import read_record
    from autotune.verify.arm import SHORT_STEPS_S, VerifyOptions

    screen = current_screen()
    held = click.get_current_context().with_resource
    rules = rule_sources(rule_dirs, disable)
    watch_options = WatchOptions(
        steps=steps or WatchOptions.steps,
        allow_write=allow_write,
        echo=False,
        first_step_timeout_s=first_step_timeout,
        launch=launcher_of(launcher, slurm_options),
    )
    refuse_pairs(min_pairs, max_pairs)
    choice = choice_of(select, exclude, unsafe, run=None, rule_dirs=rule_dirs)
    if resume is not None:
        folder = chosen_run(runs_dir, resume)
        read_record(folder / "run.json", RunRecord)  # a folder that is no run is left alone
        held(sole_user(folder))
        found = diagnose_again(folder, rules)
    else:
        require_command(command_line, "optimize")
        folder, found = observe_and_diagnose(
            runs_dir, command_line, watch_options, rules, screen, wheelhouse=wheelhouse
        )
        held(sole_user(folder))
    if found.observation is None:
        raise InputError(
            "this run comes from saved traces: there is no job to rerun",
            where=folder.name,
            hint="start from the job: autotune optimize -- COMMAND",
            code="run-without-job",
        )
    if resume is not None:
        refuse_changed_files(found.observation)
    record = read_record(folder / "run.json", RunRecord)
    told = render_diagnosis(found.diagnosis, price_per_gpu_hour=price_per_gpu_hour, goes_on=True)
    screen.answer(told + "\n")
    options = LoopOptions(
        rules=rules,
        choice=choice,
        verify=VerifyOptions(
            min_pairs=min_pairs,
            max_pairs=max_pairs,
            steps=steps or 12,
            timing_least_s=SHORT_STEPS_S,
            parity_steps=parity_steps,
            speed_when_unproven=False,
            first_step_timeout_s=first_step_timeout,
            allow_write=allow_write,
        ),
        watch=watch_options,
        min_gain_ratio=1.0 + min_gain / 100.0,
        memory_limit_gib=memory_limit,
        max_trials=max_trials,
        max_minutes=max_minutes,
        resume_command=_resume_command(folder),
        wheelhouse=wheelhouse or (Path(record.wheelhouse) if record.wheelhouse else None),
    )
    record = record.model_copy(update={"process": this_process()})
    record = set_state(folder, record, "optimizing")
    loop = OptimizeLoop(folder, options, say=screen.note, status=screen.status)
    try:
        ladder = loop.go(found.observation, found.diagnosis)
    except AutotuneError as fault:
        set_fault(folder, record, fault)
        if isinstance(fault, InterruptedRunError):
            fault.hint = f"{options.resume_command} goes on"
        raise
    undecided = ladder.outcome == "undecided"
    set_state(folder, record, "undecided" if undecided else "optimized")
    if screen.as_json:
        screen.document(ladder)
    else:
        price = price_per_hour(found.facts, price_per_gpu_hour)
        screen.answer(render_ladder(ladder, price_per_hour=price))
        if ladder.outcome == "faster":
            screen.answer(f"\nthe patched copy lies in {folder}")
            screen.answer(
                "next: autotune apply shows the diff; autotune apply --write puts it beside the original"
            )
    if ladder.outcome != "faster":
        raise_when_failed(folder, found.observation)
    return int(Exit.UNDECIDED if undecided else Exit.DONE)


def _resume_command(folder: Path) -> str:
    again = options_again({"resume", "max_minutes", "max_trials"})
    return shlex.join(["autotune", "optimize", "--resume", folder.name, *again])
