"""The patched job of a run: what an optimize loop kept, or every admissible change of a diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import InputError
from autotune.store import read_record, write_record

if TYPE_CHECKING:
    from autotune.apply.plan import Choice
    from autotune.records.observation import Observation
    from autotune.records.plan import PatchedJob, Plan

KEPT_JOB = "patched_job.json"  # written by the optimize loop


def observation_of(run: Path) -> Observation:
    """The observation of a run. Raises InputError for a run made from saved traces."""
    from autotune.analyze.watch import OBSERVE
    from autotune.records.observation import Observation
    from autotune.records.run import RunRecord

    record = read_record(run / "run.json", RunRecord)
    if record.kind == "trace":
        raise InputError(
            "this run comes from saved traces: there is no job to patch or rerun",
            where=run.name,
            hint="start from the job: autotune analyze -- COMMAND",
            code="run-without-job",
        )
    return read_record(run / "launches" / OBSERVE / "observation.json", Observation)


def refuse_changed_files(observation: Observation) -> None:
    """Raises InputError where a file of the job is not what was watched: finished starts ran another one."""
    from autotune.apply.workbench import digest

    for file, watched in sorted({(site.file, site.file_sha256) for site in observation.sites}):
        path = Path(file)
        if not path.is_file() or digest(path.read_bytes()) == watched:
            continue
        raise InputError(
            "this file has changed since the run, so its finished starts are of another job",
            where=file,
            hint="start a new run with the same command",
            code="file-changed",
        )


def plan_of(run: Path, choice: Choice) -> Plan:
    """The plan for a run's diagnosis; kept as `plan.json`."""
    from autotune.apply.plan import build_plan
    from autotune.records.findings import Diagnosis

    if not (run / "diagnosis.json").exists():
        raise InputError(
            "this run has no diagnosis: its job failed, or the run was interrupted",
            where=run.name,
            hint="the job's output lies in the run's launches; analyze it again when it works",
            code="record-missing",
        )
    plan = build_plan(read_record(run / "diagnosis.json", Diagnosis), observation_of(run), choice=choice)
    write_record(run / "plan.json", plan)
    return plan


def patched_job_of(
    run: Path,
    choice: Choice,
    *,
    label: str,
    wheelhouse: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[PatchedJob, Plan | None]:
    """The job with its changes. A narrower choice than "everything" starts from the diagnosis again.

    Raises InputError when no change can be applied; the message says why.
    """
    from autotune.apply.job import materialise
    from autotune.records.plan import PatchedJob

    narrowed = bool(choice.select or choice.exclude or choice.unsafe)
    if (run / KEPT_JOB).exists() and not narrowed:
        return _in_its_place(read_record(run / KEPT_JOB, PatchedJob), run), None
    plan = plan_of(run, replace(choice, wheels=wheelhouse is not None))
    groups = [group for group in plan.groups if group.admissible]
    if not groups:
        reasons = [group.reason for group in plan.groups if group.reason]
        reasons += [f"{advice.rule}: {'; '.join(advice.reasons)}" for advice in plan.advice]
        raise InputError(
            "there is no change to apply" + (f": {'; '.join(reasons[:3])}" if reasons else ""),
            where=run.name,
            hint="autotune report shows what was found",
            code="nothing-to-apply",
        )
    job = materialise(
        groups, observation_of(run), run=run, label=label, wheelhouse=wheelhouse, progress=progress
    )
    return job, plan


def _in_its_place(job: PatchedJob, run: Path) -> PatchedJob:
    """The job, if its copy lies in this run. Raises InputError for a run that was moved or partly deleted."""
    tree, here = Path(job.tree).resolve(), run.resolve()
    needed = (job.tree, job.cwd, *job.python_path, *job.fingerprint_files)
    gone = [path for path in needed if not Path(path).exists()]
    if not gone and tree.is_relative_to(here):
        return job
    again = "autotune optimize makes it again"
    made_in = tree.parents[2]  # RUN/patched/LABEL/tree
    raise InputError(
        "the patched copy of this run is not where it was made",
        where=gone[0] if gone else str(here),
        hint=again if made_in == here else f"move the run back to {made_in}; or {again}",
        code="run-moved",
    )


def baseline_job_of(run: Path) -> PatchedJob:
    """The unchanged job in a shadow tree of its own, as the other arm of a trial."""
    from autotune.apply.job import materialise

    return materialise([], observation_of(run), run=run, label="baseline")
