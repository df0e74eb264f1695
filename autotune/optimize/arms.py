"""Patched jobs as arms of a comparison, and the parity tier a set of changes asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.optimize.live import fused_roles, live_check_for

if TYPE_CHECKING:
    from autotune.analyze.diagnose import RuleSources
    from autotune.analyze.watch import JobStart
    from autotune.records.observation import Observation
    from autotune.records.plan import PatchedJob, PlanGroup
    from autotune.records.terms import Tier
    from autotune.verify.arm import Arm, LiveCheck

_TIERS: tuple[Tier, ...] = ("bitwise", "numeric", "token-exact", "statistical")


def arm_of(
    name: str,
    job: PatchedJob,
    *,
    live_check: LiveCheck | None = None,
    fused_roles: tuple[str, ...] = (),
    warmed: bool = False,
) -> Arm:
    """The arm that starts this job."""
    from autotune.verify.arm import Arm

    return Arm(
        name=name,
        command=tuple(job.command),
        cwd=Path(job.cwd),
        env=dict(job.env),
        python_path=tuple(Path(path) for path in job.python_path),
        fingerprint=job.fingerprint,
        fingerprint_files=tuple(Path(path) for path in job.fingerprint_files),
        user_roots=tuple(Path(path) for path in job.user_roots),
        protected_roots=tuple(Path(path) for path in job.protected_roots),
        live_check=live_check,
        fused_roles=fused_roles,
        warmed=warmed,
    )


def arms_of(
    current: PatchedJob, jobs: Sequence[tuple[PlanGroup, PatchedJob]], rules: RuleSources
) -> list[Arm]:
    """The job as it is and each group on top of those before; the last one proves that all are in effect."""
    groups = [group for group, _ in jobs]
    before = [arm_of(group.id, job) for group, job in jobs[:-1]]
    last = [
        arm_of(group.id, job, live_check=live_check_for(groups, rules), fused_roles=fused_roles(groups))
        for group, job in jobs[-1:]
    ]
    return [arm_of("as it is", current, warmed=True), *before, *last]


def start_of(job: PatchedJob) -> JobStart:
    """The same job for a single observed launch."""
    from autotune.analyze.watch import JobStart

    return JobStart(
        command=tuple(job.command),
        cwd=Path(job.cwd),
        env=dict(job.env),
        python_path=tuple(Path(path) for path in job.python_path),
        fingerprint_files=tuple(Path(path) for path in job.fingerprint_files),
        user_roots=tuple(Path(path) for path in job.user_roots),
        protected_roots=tuple(Path(path) for path in job.protected_roots),
    )


def widest_tier(tiers: Iterable[Tier | None]) -> Tier:
    """The tier that allows what every change of a set must be allowed to do; numeric when none is named."""
    found = [_TIERS.index(tier) for tier in tiers if tier is not None]
    return _TIERS[max(found)] if found else "numeric"


def finished_look(folder: Path, job: PatchedJob) -> Observation | None:
    """The profile of exactly this job that was finished before the loop was resumed; None without one."""
    from autotune.errors import AutotuneError
    from autotune.observe.secrets import hide_command
    from autotune.records.observation import Observation
    from autotune.store import read_record

    if not (folder / "observation.json").is_file():
        return None
    try:
        found = read_record(folder / "observation.json", Observation)
    except AutotuneError:
        return None  # cut short, or of another version
    same = found.command == hide_command(job.command) and found.cwd == str(job.cwd)
    ran = [rank.patch_fingerprint for rank in found.ranks if rank.steps]
    whole = bool(ran) and all(not job.fingerprint or digest == job.fingerprint for digest in ran)
    return found if same and whole and found.stop_reason != "interrupted" else None
