"""What `run_comparison` is given: the commands to compare, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.observe.spec import Echo, StopKind
    from autotune.records.observation import Observation
    from autotune.records.terms import Tier


@dataclass(frozen=True, slots=True)
class LiveFindings:
    """What a fresh profile of the changed job says about the change being in effect."""

    faults: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()  # whose change is not in effect
    checked: tuple[str, ...] = ()


SHORT_STEPS_S = 6.0
"""A start takes seconds before its first step: steps that are short against that are timed for this long."""

LiveCheck = Callable[["Observation", Path], LiveFindings]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One command of a comparison; the first arm given is the baseline."""

    name: str
    command: tuple[str, ...]
    cwd: Path
    env: dict[str, str | None] = field(default_factory=dict)
    python_path: tuple[Path, ...] = ()
    fingerprint: str = ""
    """Digest of the edited files; every rank must report it. Empty: nothing was edited."""
    fingerprint_files: tuple[Path, ...] = ()
    warmed: bool = False
    """The same command ran before on this machine, so its caches are warm."""
    live_check: LiveCheck | None = None
    """Called with the observation and the folder of a fresh profile launch of this arm."""
    fused_roles: tuple[str, ...] = ()
    """Roles (linear_attention, causal_conv) whose fused kernels it must run; its first launch tells."""
    user_roots: tuple[Path, ...] = ()
    protected_roots: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """How to compare."""

    tier: Tier | None = "numeric"
    """What must hold for training; None: speed only (rungs whose parity is already proven)."""
    min_pairs: int = 3
    max_pairs: int = 8
    """0: parity only."""
    steps: int = 20
    warmup_steps: int = 3
    timing_budget_s: float | None = None
    """Wall time of the timed steps of one launch; slow steps are timed fewer times, never under five."""
    timing_least_s: float | None = None
    """Short steps are timed more often than `steps`, until they fill this time."""
    parity_steps: int = 20
    """Compared steps of one parity launch, at least five."""
    reference: bool = True
    """Where half precision is at work, launch the baseline once more in float32 to judge by."""
    shared_folder: Path | None = None
    """Where parity launches lie that several comparisons of one run use; None: in the comparison's own."""
    seed: int | None = 0
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the statistical tier."""
    max_minutes: float | None = None
    self_check: bool = False
    """The arms are the same command: measures the noise of this machine."""
    speed_when_broken: bool = False
    """Time the arms although training changed."""
    speed_when_unproven: bool = True
    """Time the arms although nothing shows that training is unchanged: nothing is accepted then."""
    first_step_timeout_s: float = 900.0
    run_timeout_s: float | None = None
    """Longest launch; None: six times the baseline's, plus five minutes."""
    allow_write: tuple[Path, ...] = ()
    protect: bool = True
    stop: StopKind = "soft"
    echo: Echo = "none"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a comparison stands."""

    phase: str  # warm | parity | live | timing
    launch: int  # this launch, counted from 1
    launches: int  # at least as many are planned in all
    detail: str
    minutes_left: float | None = None


ProgressCallback = Callable[[Progress], None]


def progress_line(state: Progress) -> str:
    """Where a comparison stands, on one line, with the time left where a limit or earlier starts tell it."""
    left = f", {state.minutes_left:.1f} minutes left" if state.minutes_left is not None else ""
    return f"{state.phase} {state.launch}/{state.launches} {state.detail}{left}"
