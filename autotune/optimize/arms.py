"""Patched jobs as arms of a comparison, and the parity tier a set of changes asks for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.records.plan import PatchedJob
    from autotune.records.terms import Tier
    from autotune.verify.arm import Arm

_TIERS: tuple[Tier, ...] = ("bitwise", "numeric", "token-exact", "statistical")


def arm_of(name: str, job: PatchedJob) -> Arm:
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
    )


def widest_tier(tiers: Iterable[Tier | None]) -> Tier:
    """The tier that allows what every change of a set must be allowed to do; numeric when none is named."""
    found = [_TIERS.index(tier) for tier in tiers if tier is not None]
    return _TIERS[max(found)] if found else "numeric"
