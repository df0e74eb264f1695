"""Start the job once under the probe, and say plainly when that brought nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.observe.progress import Progress, ProgressCallback
    from autotune.observe.spec import LaunchSpec
    from autotune.records.observation import LaunchMode, Observation

    LaunchFunction = Callable[[LaunchSpec, "ProgressCallback | None"], Observation]

OBSERVE = "observe"  # label of the launch that watches the unchanged job


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """How long to look and how."""

    mode: LaunchMode = "profile"
    steps: int = 12
    warmup_steps: int = 8
    profile_steps: int = 1
    profile_ranks: tuple[int, ...] = (0,)
    run_to_end: bool = False
    allow_write: tuple[Path, ...] = ()
    echo: bool = True
    first_step_timeout_s: float = 900.0
    total_timeout_s: float | None = None
    launch: LaunchFunction | None = None
    """Starts the job; None: on this machine."""


@dataclass(frozen=True, kw_only=True)
class JobStart:
    """What is started: the user's command, or the patched job's."""

    command: tuple[str, ...]
    cwd: Path
    env: dict[str, str | None] = field(default_factory=dict)
    python_path: tuple[Path, ...] = ()
    fingerprint_files: tuple[Path, ...] = ()
    user_roots: tuple[Path, ...] = ()
    protected_roots: tuple[Path, ...] = ()


def watch(
    job: JobStart,
    folder: Path,
    options: WatchOptions,
    progress: Callable[[Progress], None] | None = None,
) -> Observation:
    """One observed launch in `folder`. Raises JobFailedError or NotObservedError when no step was seen."""
    from autotune.observe.launch import launch
    from autotune.observe.outcome import require_steps
    from autotune.observe.spec import LaunchSpec

    spec = LaunchSpec(
        command=job.command,
        cwd=job.cwd,
        folder=folder,
        mode=options.mode,
        steps=options.steps,
        warmup_steps=options.warmup_steps,
        profile_steps=options.profile_steps,
        profile_ranks=options.profile_ranks,
        env=dict(job.env),
        python_path=job.python_path,
        fingerprint_files=job.fingerprint_files,
        user_roots=job.user_roots,
        protected_roots=job.protected_roots,
        allow_write=options.allow_write,
        stop="never" if options.run_to_end else "soft",
        echo="stderr" if options.echo else "none",
        first_step_timeout_s=options.first_step_timeout_s,
        total_timeout_s=options.total_timeout_s,
    )
    observation = (options.launch or launch)(spec, progress)
    if not ran_out_of_memory(observation):
        require_steps(observation, where=str(folder / "train.log"))
    return observation


def ran_out_of_memory(observation: Observation) -> bool:
    """Some rank ended in an out-of-memory error: a finding of its own, with or without steps."""
    return any(rank.memory is not None and rank.memory.out_of_memory for rank in observation.ranks)
