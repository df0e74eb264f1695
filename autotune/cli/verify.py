"""`autotune verify`: rerun the original and the patched job, compare speed and training."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.choices import choice_of, choice_options, refuse_pairs
from autotune.cli.common import chosen_run, current_screen, output_options, price_option, runs_dir_option
from autotune.cli.complete import run_names
from autotune.cli.kinds import NumberValue
from autotune.cli.launcher import launcher_of, launcher_options
from autotune.errors import Exit

if TYPE_CHECKING:
    from autotune.console import Screen
    from autotune.records.terms import Tier
    from autotune.records.verdict import Verdict
    from autotune.verify.arm import Progress


@click.command("verify", epilog="Example: autotune verify --max-pairs 5")
@click.argument("run_name", metavar="[RUN]", required=False, shell_complete=run_names)
@click.option("--min-pairs", type=click.IntRange(2, 50), default=3, show_default=True, help="Pairs at least.")
@click.option("--max-pairs", type=click.IntRange(2, 50), default=8, show_default=True, help="Pairs at most.")
@click.option(
    "--steps", type=click.IntRange(5, 10_000), default=12, show_default=True, help="Steps per start."
)
@click.option(
    "--parity-steps",
    type=click.IntRange(5, 10_000),
    default=20,
    show_default=True,
    help="Steps whose training is compared.",
)
@click.option("--max-minutes", type=NumberValue(min=0.1), help="Stop after this many minutes.")
@click.option("--self-check", is_flag=True, help="Compare the job with itself: the noise of this machine.")
@click.option(
    "--recompute",
    is_flag=True,
    help="Judge the verdicts of RUN, or one verdict.json, again from their steps.",
)
@launcher_options
@price_option
@choice_options
@runs_dir_option
@output_options
def command(
    run_name: str | None,
    min_pairs: int,
    max_pairs: int,
    steps: int,
    parity_steps: int,
    max_minutes: float | None,
    self_check: bool,
    recompute: bool,
    launcher: str,
    slurm_options: tuple[str, ...],
    price_per_gpu_hour: float | None,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    unsafe: bool,
    wheelhouse: Path | None,
    runs_dir: Path,
) -> int:
    """Rerun the original and the patched job of a run alternately and compare speed and training."""
    if recompute:
        return _recompute(runs_dir, run_name)
    refuse_pairs(min_pairs, max_pairs)
    from autotune.observe.launch import launch
    from autotune.optimize.arms import arm_of, widest_tier
    from autotune.optimize.patched import (
        baseline_job_of,
        observation_of,
        patched_job_of,
        refuse_changed_files,
    )
    from autotune.records.run import RunRecord
    from autotune.sole_user import sole_user
    from autotune.store import read_record
    from autotune.verify.arm import SHORT_STEPS_S, VerifyOptions
    from autotune.verify.trial import run_comparison

    screen = current_screen()
    submit = launcher_of(launcher, slurm_options)
    folder = chosen_run(runs_dir, run_name)
    record = read_record(folder / "run.json", RunRecord)
    click.get_current_context().with_resource(sole_user(folder))
    refuse_changed_files(observation_of(folder))
    baseline = baseline_job_of(folder)
    tier: Tier | None = None
    if self_check:
        candidate = baseline
    else:
        candidate, plan = patched_job_of(
            folder,
            choice_of(select, exclude, unsafe, run=folder),
            label="verify",
            wheelhouse=wheelhouse,
            progress=screen.status,
        )
        tier = (
            (candidate.parity or _tier_of(candidate.rules))
            if plan is None
            else widest_tier(g.parity for g in plan.groups if g.admissible)
        )
    options = VerifyOptions(
        tier=tier,
        min_pairs=min_pairs,
        max_pairs=max_pairs,
        steps=steps,
        timing_least_s=SHORT_STEPS_S,
        parity_steps=parity_steps,
        max_minutes=max_minutes,
        self_check=self_check,
        allow_write=tuple(Path(path) for path in record.allow_write),
    )
    arms = [arm_of("original", baseline), arm_of("the same again" if self_check else "patched", candidate)]
    verdict = run_comparison(
        arms,
        folder=folder / "trials" / ("self-check" if self_check else "verify"),
        options=options,
        launch=lambda spec: submit(spec, None) if submit is not None else launch(spec),
        progress=_show_progress(screen),
    )
    if screen.as_json:
        screen.document(verdict)
    else:
        _show_verdict(folder, verdict, price_per_gpu_hour)
    return _exit_code(verdict, self_check)


def _show_verdict(folder: Path, verdict: Verdict, price_per_gpu_hour: float | None) -> None:
    from autotune.records.facts import FactSheet
    from autotune.report.figures import price_per_hour
    from autotune.report.verdict import render_verdict, whole_job
    from autotune.store import read_record

    screen = current_screen()
    screen.answer(render_verdict(verdict, folder.name))
    if (folder / "facts.json").is_file():
        facts = read_record(folder / "facts.json", FactSheet)
        for line in whole_job(verdict, facts, price_per_hour(facts, price_per_gpu_hour)):
            screen.answer(line)


def _recompute(runs_dir: Path, run_name: str | None) -> int:
    """Nothing is started: the same numbers, through the same judgement."""
    from autotune.errors import InputError
    from autotune.records.base import SCHEMA_VERSION
    from autotune.verify.recheck import recheck, recheck_run

    screen = current_screen()
    alone = Path(run_name) if run_name else None
    if alone is not None and alone.is_file():
        folder, found = alone.resolve().parent, [recheck(alone.resolve())]
    else:
        folder = chosen_run(runs_dir, run_name)
        found = recheck_run(folder)
    if not found:
        raise InputError(
            "this run holds no verdict",
            where=folder.name,
            hint="autotune verify or autotune optimize makes one",
        )
    for one in found:
        if screen.as_json:
            break
        screen.answer(
            f"{one.path.relative_to(folder)}: {'NOT what its steps say' if one.differences else 'the same'}"
        )
        screen.answer(f"  {one.verdict.sentence}")
        if one.differences:
            screen.answer(f"  recomputed: {one.again.sentence} (differs in {', '.join(one.differences)})")
    if screen.as_json:
        rows = [
            {
                "verdict": str(one.path.relative_to(folder)),
                "same": not one.differences,
                "differences": one.differences,
                "sentence": one.verdict.sentence,
                "recomputed": one.again.sentence,
            }
            for one in found
        ]
        screen.json_value({"schema_version": SCHEMA_VERSION, "verdicts": rows})
    return int(Exit.BAD_INPUT if any(one.differences for one in found) else Exit.DONE)


def _show_progress(screen: Screen) -> Callable[[Progress], None]:
    """Which launch runs, and how long the rest takes at the pace of the launches so far."""
    started = time.monotonic()

    def show(state: Progress) -> None:
        text = f"{state.phase} {state.launch}/{state.launches} {state.detail}"
        left = time_left_s(time.monotonic() - started, state.launch - 1, state.launches)
        if state.minutes_left is not None:
            left = min(left or state.minutes_left * 60, state.minutes_left * 60)
        if left is not None:
            text += f", about {left / 60:.0f} min left" if left >= 90 else f", about {left:.0f} s left"
        screen.status(text)

    return show


def time_left_s(elapsed_s: float, done: int, planned: int) -> float | None:
    """Seconds the launches still to come take; None before the first one has ended."""
    return elapsed_s / done * (planned - done) if done > 0 else None


def _exit_code(verdict: Verdict, self_check: bool) -> int:
    if self_check:
        return int(Exit.DONE if verdict.noise_floor_frac is not None else Exit.UNDECIDED)
    from autotune.verify.verdict import EXIT_CODES

    return int(EXIT_CODES[verdict.outcome])


def _tier_of(rules: list[str]) -> Tier:
    """The tier of what an optimize run kept, from the rules' own files."""
    from autotune.data import data_dir
    from autotune.facts.catalogue import catalogue
    from autotune.optimize.arms import widest_tier
    from autotune.rules.load import load_rules

    known = load_rules([data_dir("rules")], catalogue=catalogue()).rules
    return widest_tier(loaded.rule.parity for loaded in known if loaded.id in rules)
