"""`autotune apply`: the patched copy of a run, or a training script from a template."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.choices import choice_of, choice_options
from autotune.cli.common import (
    chosen_run,
    current_screen,
    output_options,
    refuse_existing,
    runs_dir_option,
)
from autotune.cli.complete import run_names
from autotune.cli.kinds import PathValue
from autotune.errors import AutotuneError, InputError

if TYPE_CHECKING:
    from autotune.apply.plan import Choice
    from autotune.records.plan import Advice, PatchedJob, Plan, Proof


@click.command("apply", epilog="Example: autotune apply --write")
@click.argument("run_name", metavar="[RUN]", required=False, shell_complete=run_names)
@click.option("--write", "write", is_flag=True, help="Put the patched copy beside the original.")
@click.option("--revert", is_flag=True, help="Take away what --write or --in-place put there.")
@click.option("--in-place", is_flag=True, help="Edit the originals; wants a clean git tree.")
@click.option("--template", help="Write a whole training script instead: fsdp2, or a template PATH of yours.")
@click.option(
    "--environment",
    type=PathValue(file_okay=False),
    help="Write the run's packages into this folder: requirements, Dockerfile, source builds.",
)
@click.option("--full", is_flag=True, help="Show added modules in full, not only by name.")
@click.option("-o", "--output", type=PathValue(dir_okay=False), help="File for --template.")
@click.option("--overwrite", is_flag=True, help="Replace the file of -o if it is there.")
@click.option(
    "--set", "settings", multiple=True, metavar="PART.FIELD=VALUE",
    help="A setting of the script, over what the run saw; autotune generate --fields lists them.",
)  # fmt: skip
@choice_options
@runs_dir_option
@output_options
def command(
    run_name: str | None,
    write: bool,
    revert: bool,
    in_place: bool,
    template: str | None,
    environment: Path | None,
    full: bool,
    output: Path | None,
    overwrite: bool,
    settings: tuple[str, ...],
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    unsafe: bool,
    wheelhouse: Path | None,
    runs_dir: Path,
) -> None:
    """Show the changes for a run (the latest by default) as a diff; --write puts the copy in place.

    After `optimize` these are the changes that were proven; after `analyze`, all that can be applied.
    """

    _refuse_together(
        {
            "--write": write,
            "--in-place": in_place,
            "--revert": revert,
            "--template": template is not None,
            "--environment": environment is not None,
        }
    )
    if output is not None and template is None:
        raise InputError("--output has no effect without --template", code="usage")
    if overwrite and template is None:
        raise InputError("--overwrite has no effect without --template", code="usage")
    if settings and template is None:
        raise InputError("--set has no effect without --template", code="usage")
    folder = chosen_run(runs_dir, run_name)
    if revert:
        _revert(folder)
    elif template is not None:
        _from_template(folder, template, output, overwrite, settings)
    elif environment is not None:
        _environment(folder, environment)
    else:
        choice = choice_of(select, exclude, unsafe, run=folder)
        _patch(folder, write, in_place, choice, wheelhouse, full)


def _refuse_together(asked: dict[str, bool]) -> None:
    """Each of these says what is to be done; of two, one would be passed over in silence."""
    given = [option for option, is_given in asked.items() if is_given]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} do not go together", hint="choose one", code="usage")


def _patch(
    folder: Path, write: bool, in_place: bool, choice: Choice, wheelhouse: Path | None, full: bool
) -> None:
    from autotune.apply.deliver import deliver, preview
    from autotune.optimize.patched import patched_job_of
    from autotune.optimize.proof import proof_of

    screen = current_screen()
    job, plan = patched_job_of(
        folder,
        choice,
        label="apply",
        wheelhouse=wheelhouse,
        progress=screen.status,
    )
    if write or in_place:
        _refuse_refuted(folder, job, choice)
    proof = proof_of(folder, job, plan)
    manifest = deliver(job, run=folder, in_place=in_place, write=write or in_place, proof=proof)
    left_out = _left_out(plan)
    if screen.as_json:
        screen.document(manifest.model_copy(update={"left_out": left_out}))
        return
    screen.answer(preview(job, full=full))
    _say_proof(proof, plan, folder)
    _say_left_out(left_out)
    if manifest.written:
        for file in manifest.files:
            screen.answer(f"{file.action} {file.path}")
        screen.answer(f"run it with: {manifest.launch_command}")
        screen.answer("take it back with: autotune apply --revert")
    else:
        screen.answer("nothing was written; autotune apply --write puts the copy beside the original")


def _say_proof(proof: Proof, plan: Plan | None, folder: Path) -> None:
    """What the shown changes rest on; an edit that no trial contained is named with its place."""
    from autotune.report.wrapping import wrap

    screen = current_screen()
    then = "" if proof.proven else f"; autotune verify {folder.name} measures them"
    screen.answer("\n".join(wrap(proof.sentence + then, 2)))
    members = [member for group in plan.groups for member in group.members] if plan is not None else []
    for member in members:
        if member.rule in proof.untried:
            places = f" at {', '.join(member.places)}" if member.places else ""
            screen.answer(f"in no trial: {member.rule}{places}")


def _say_left_out(left_out: list[Advice]) -> None:
    """One line for each finding that nothing above changes."""
    from autotune.report.wrapping import wrap

    screen = current_screen()
    for advice in left_out:
        screen.answer("\n".join(wrap(f"left out: {advice.rule}: {' | '.join(advice.reasons)}", 2)))


def _left_out(plan: Plan | None) -> list[Advice]:
    """The findings that nothing here changes, and why; what the command line left out is known."""
    known = (["not selected"], ["excluded"])
    return [advice for advice in plan.advice if advice.reasons not in known] if plan is not None else []


def _refuse_refuted(folder: Path, job: PatchedJob, choice: Choice) -> None:
    """What verify has shown to be slower or to train differently is not put beside the original."""
    from autotune.records.verdict import Verdict
    from autotune.store import read_record

    path = folder / "trials" / "verify" / "verdict.json"
    if choice.unsafe or not path.exists():
        return
    verdict = read_record(path, Verdict)
    same = any(arm.fingerprint and arm.fingerprint == job.fingerprint for arm in verdict.arms[1:])
    if same and verdict.outcome in ("parity-broken", "slower", "candidate-crashed", "patch-not-live"):
        raise AutotuneError(
            f"verify refuted exactly this patch: {verdict.sentence}",
            where=folder.name,
            hint="leave changes out with --exclude RULE, or let autotune optimize try each; --unsafe insists",
            code="patch-refuted",
        )


def _revert(folder: Path) -> None:
    from autotune.apply.deliver import revert
    from autotune.records.answers import Reverted

    screen = current_screen()
    gone = revert(folder)
    if screen.as_json:
        screen.document(Reverted(reverted=list(gone)))
        return
    for path in gone:
        screen.answer(f"reverted {path}")


def _environment(folder: Path, into: Path) -> None:
    from autotune.apply.environment import environment_files
    from autotune.optimize.patched import KEPT_JOB, observation_of
    from autotune.records.answers import EnvironmentWritten
    from autotune.records.plan import PatchedJob
    from autotune.store import read_record, write_text

    screen = current_screen()
    kept = folder / KEPT_JOB
    job = read_record(kept, PatchedJob) if kept.exists() else None
    files = environment_files(observation_of(folder), job, run=folder.name)
    for name in files:
        if (into / name).exists():
            raise InputError(
                "this file is there already",
                where=str(into / name),
                hint="choose another folder",
                code="file-in-the-way",
            )
    for name, text in files.items():
        write_text(into / name, text)
    written = [str(into / name) for name in files]
    if screen.as_json:
        screen.document(EnvironmentWritten(files=written, proven=job is not None))
        return
    for path in written:
        screen.answer(f"wrote {path}")
    if job is None:
        screen.answer("these are the packages of the watched job; autotune optimize proves a change first")


def _from_template(
    folder: Path, template: str, output: Path | None, overwrite: bool, settings: tuple[str, ...]
) -> None:
    from autotune.optimize.script import script_of
    from autotune.records.answers import ScriptWritten
    from autotune.store import write_text

    screen = current_screen()
    if output is None:
        raise InputError(
            "--template needs a file to write", hint="add -o train_fsdp2.py", code="argument-missing"
        )
    refuse_existing(output, overwrite)
    filled = script_of(folder, output, template, settings)
    write_text(output, filled.text)
    if screen.as_json:
        screen.document(ScriptWritten(script=str(output), launch=filled.launch, missing=filled.missing))
        return
    screen.answer(
        f"wrote {output}: generated, not derived from your script; its header lists what it took over"
    )
    for missing in filled.missing:
        screen.answer(f"still to be set: {missing}")
    if filled.missing:
        screen.answer("the script cannot train before that is set; --overwrite writes this file again")
    else:
        screen.answer(f"run it with: {filled.launch}")
