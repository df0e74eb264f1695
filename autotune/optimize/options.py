"""What the loop may spend and what it may touch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.analyze.watch import WatchOptions

if TYPE_CHECKING:
    from autotune.analyze.diagnose import RuleSources
    from autotune.apply.plan import Choice
    from autotune.verify.arm import VerifyOptions


@dataclass(frozen=True, kw_only=True)
class LoopOptions:
    """Limits and choices of one optimize run."""

    rules: RuleSources
    choice: Choice
    verify: VerifyOptions
    watch: WatchOptions = field(default_factory=WatchOptions)
    min_gain_ratio: float = 1.03  # below this predicted bound nothing is tried
    max_trials: int | None = None
    max_minutes: float | None = None
    rungs_per_trial: int = 3
    memory_limit_gib: float | None = None  # what a rank may use; None: its device, or its share of the host
    wheelhouse: Path | None = None
    templates_dir: Path | None = None
    resume_command: str = ""  # what goes on with this run as it was started, without its limits
