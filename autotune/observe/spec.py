"""What one start of the job should do: the input of `launch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from autotune.records.observation import LaunchMode

StopKind = Literal["soft", "hard", "never"]
Echo = Literal["both", "stderr", "none"]


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """One launch. Paths are absolute; seconds count from the start of the command."""

    command: tuple[str, ...]
    cwd: Path
    folder: Path
    """The launch folder; made by `launch`, and the only place we write to."""
    mode: LaunchMode = "profile"
    steps: int = 20
    """Timed steps wanted after warm-up; the job is stopped after them unless `stop` is "never"."""
    warmup_steps: int = 10
    profile_steps: int = 1
    profile_ranks: tuple[int, ...] = (0,)
    budget_s: float | None = None
    """Wall time of the timing window; slow steps are timed fewer times."""
    least_s: float | None = None
    """Short steps are timed until they fill this time, at most `probe.windows.MOST_LONGER` times as many."""
    seed: int | None = None
    seed_shift: int = 0
    """Added to every seed that the job itself sets."""
    deterministic: bool = False
    """Parity mode: switch torch to deterministic algorithms where it has them."""
    isolation: bool = False
    """Parity mode: run the isolation test on the first packed batch."""
    example_steps: int = 2
    """Parity mode: steps in which the loss of every single example is kept."""
    full_precision: bool = False
    """Parity mode: all arithmetic in float32, whatever the job asks for."""
    module_inputs: Path | None = None
    """Parity mode: the file of captured inputs of single modules."""
    keep_module_inputs: bool = False
    """This launch writes that file; others read it."""
    longest_first: bool = False
    """The first batch holds the longest examples of the data set: the most memory a batch takes."""
    longest_times: int = 8
    """How often that batch comes before the job's own order goes on."""
    memory_probe: tuple[int, ...] = ()
    """For each step, how many checkpointed blocks run without checkpointing. The job stops after the last."""
    env: dict[str, str | None] = field(default_factory=dict)
    """Variables to set, or to take away (None), in the job."""
    python_path: tuple[Path, ...] = ()
    """Overlay folders for the job's import path; the patched arm only."""
    protect: bool = True
    """Keep the user's files from change. Off by itself when the job runs to its end."""
    allow_write: tuple[Path, ...] = ()
    protected_roots: tuple[Path, ...] = ()
    """More folders to keep besides the working folder, what its links lead to, and `user_roots`."""
    fingerprint_files: tuple[Path, ...] = ()
    """Files of which each rank reports the digest of what it really ran."""
    user_roots: tuple[Path, ...] = ()
    """The project's folders, whose code may be edited."""
    keep_sandbox: bool = False
    """Keep what the job wrote there; it can be as large as its checkpoints."""
    stop: StopKind = "soft"
    echo: Echo = "both"
    """Where the job's output goes besides train.log: its own streams, all to stderr, or nowhere."""
    hello_timeout_s: float | None = None
    """Until a Python process announces itself. None: 60 s, or 900 s behind a shell or a scheduler."""
    first_step_timeout_s: float = 1800.0
    stall_timeout_s: float = 900.0
    """After the first step, without a step, a record or a line of output: mostly a stuck collective."""
    total_timeout_s: float | None = None
    stop_grace_s: float = 20.0
    """What `finally` and `atexit` of a stopped job may take before it is ended."""

    @property
    def guarded(self) -> bool:
        """Whether writes are redirected and refused."""
        return self.protect and self.stop != "never"
