"""`autotune verify`: rerun the original and the patched job, compare speed and training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.choices import choice_of, choice_options
from autotune.cli.common import current_screen, output_options, runs_dir_option
from autotune.errors import Exit

if TYPE_CHECKING:
    from autotune.records.terms import Tier
    from autotune.records.verdict import Verdict


@click.command("verify", epilog="Example: autotune verify --max-pairs 5")
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option("--min-pairs", type=click.IntRange(2, 50), default=3, show_default=True, help="Pairs at least.")
@click.option("--max-pairs", type=click.IntRange(2, 50), default=8, show_default=True, help="Pairs at most.")
@click.option(
    "--steps", type=click.IntRange(3, 10_000), default=12, show_default=True, help="Steps per start."
)
@click.option("--max-minutes", type=click.FloatRange(min=0.1), help="Stop after this many minutes.")
@click.option("--self-check", is_flag=True, help="Compare the job with itself: the noise of this machine.")
@choice_options
@runs_dir_option
@output_options
def command(
    run_name: str | None,
    min_pairs: int,
    max_pairs: int,
    steps: int,
    max_minutes: float | None,
    self_check: bool,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    unsafe: bool,
    wheelhouse: Path | None,
    runs_dir: Path,
) -> int:
    """Rerun the original and the patched job of a run alternately and compare speed and training."""
    from autotune.observe.launch import launch
    from autotune.optimize.arms import arm_of, widest_tier
    from autotune.optimize.patched import baseline_job_of, patched_job_of
    from autotune.records.run import RunRecord
    from autotune.store import find_run, read_record
    from autotune.verify.arm import VerifyOptions
    from autotune.verify.trial import run_comparison

    screen = current_screen()
    folder = find_run(runs_dir, run_name)
    record = read_record(folder / "run.json", RunRecord)
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
        max_minutes=max_minutes,
        self_check=self_check,
        allow_write=tuple(Path(path) for path in record.allow_write),
    )
    arms = [arm_of("original", baseline), arm_of("the same again" if self_check else "patched", candidate)]
    verdict = run_comparison(
        arms,
        folder=folder / "trials" / ("self-check" if self_check else "verify"),
        options=options,
        launch=launch,
        progress=lambda p: screen.status(f"{p.phase} {p.launch}/{p.launches} {p.detail}"),
    )
    if screen.as_json:
        screen.document(verdict)
    else:
        from autotune.report.verdict import render_verdict

        screen.answer(render_verdict(verdict))
    return _exit_code(verdict, self_check)


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
