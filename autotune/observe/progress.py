"""Where a running job stands, read from the small files the probe leaves in the launch folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.observe.processes import Process

# Programs whose presence explains a long first step.
_COMPILERS = {
    "ptxas", "nvcc", "cicc", "cudafe++", "fatbinary", "nvlink", "cc1", "cc1plus", "gcc", "g++", "clang",
    "clang++", "hipcc", "ninja", "ld", "lld", "as", "llc", "cmake", "collect2",
}  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """One state of a launch, for a progress line."""

    phase: str  # starting | loading | first step | warmup | timing | profile | ... | stopping | done
    elapsed_s: float
    step: int | None = None
    of: int | None = None
    step_ms: float | None = None
    left_s: float | None = None
    processes: int = 0  # Python processes that announced themselves
    ranks: int = 0
    message: str = ""  # what it waits for


ProgressCallback = Callable[[Progress], None]


@dataclass
class Watcher:
    """Reads the launch folder; cheap enough to be asked a few times a second."""

    folder: Path
    steps: int

    def hello_count(self) -> int:
        """Python processes that announced themselves."""
        return _count(self.folder / "hello", "*.json")

    def rank_folders(self) -> list[Path]:
        """Folders of processes that train."""
        raw = self.folder / "raw"
        return sorted(raw.glob("rank-*")) if raw.is_dir() else []

    def all_done(self) -> bool:
        """Every rank has written how it ended."""
        ranks = self.rank_folders()
        return bool(ranks) and all((rank / "exit.json").exists() for rank in ranks)

    def live_rank(self) -> bool:
        """A training process is still running (it may outlive a command that went to the background)."""
        for rank in self.rank_folders():
            if (rank / "exit.json").exists():
                continue
            start = _first_event(rank / "events.jsonl")
            if _alive(start.get("pid")) or (not start and self.live_candidate()):
                return True
        return False

    def ranks_gone(self) -> bool:
        """The processes of all ranks have ended."""
        return not any(_alive(_first_event(r / "events.jsonl").get("pid")) for r in self.rank_folders())

    def live_candidate(self) -> bool:
        """A Python process that may still begin to train is running."""
        hellos = (_first_event(path) for path in (self.folder / "hello").glob("*.json"))
        return any(hello.get("armed") is True and _alive(hello.get("pid")) for hello in hellos)

    def last_record_s(self) -> float:
        """Monotonic time of the newest record of any rank; 0 when there is none."""
        files = [self.folder / "raw" / "progress.json"]
        for rank in self.rank_folders():
            files += rank.iterdir()
        newest = max((_changed(file) for file in files), default=0.0)
        return time.monotonic() - (time.time() - newest) if newest else 0.0

    def world_size(self) -> int | None:
        """What rank 0 said; None before it said it."""
        value = self._progress().get("world_size")
        return value if isinstance(value, int) else None

    def _progress(self) -> dict[str, Any]:
        try:
            found = json.loads((self.folder / "raw" / "progress.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def first_step_seen(self) -> bool:
        """A training step has ended on some rank."""
        step = self._progress().get("step")
        if isinstance(step, int) and step > 0:
            return True
        return any(_has_step(rank / "events.jsonl") for rank in self.rank_folders())

    def state(self, elapsed_s: float) -> Progress:
        """The present state."""
        hello, ranks = self.hello_count(), self.rank_folders()
        base = Progress("starting", elapsed_s, processes=hello, ranks=len(ranks))
        if not hello:
            return replace(base, message="waiting for the first Python process")
        found = self._progress()
        step, of, step_ms = found.get("step"), found.get("of"), found.get("step_ms")
        if not ranks or not step:
            phase = "first step" if ranks else "loading"
            return replace(base, phase=phase, of=of if isinstance(of, int) else None)
        left = None
        if isinstance(of, int) and isinstance(step_ms, (int, float)) and of >= step:
            left = (of - step) * step_ms / 1000
        phase = str(found.get("phase") or "timing")
        if self.all_done():
            phase, left = "stopping", None
        return replace(
            base,
            phase=phase,
            step=step if isinstance(step, int) else None,
            of=of if isinstance(of, int) else None,
            step_ms=float(step_ms) if isinstance(step_ms, (int, float)) else None,
            left_s=left,
        )


def waits_for(processes: list[Process], log_age_s: float) -> str:
    """What a job without a step seems to be doing."""
    compilers = sorted({p.name for p in processes if p.name in _COMPILERS or p.name.startswith("triton")})
    if compilers:
        return f"compiling ({', '.join(compilers[:3])})"
    if log_age_s < 5:
        return "the job is printing; no step yet"
    return "downloading, reading or compiling; a first step can take minutes"


def _count(folder: Path, pattern: str) -> int:
    return sum(1 for _ in folder.glob(pattern)) if folder.is_dir() else 0


def _first_event(events: Path) -> dict[str, Any]:
    try:
        with open(events, encoding="utf-8") as file:
            found = json.loads(file.readline())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _alive(pid: object) -> bool:
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return not os.path.isdir("/proc/self")  # a system without /proc: the signal told it
    except OSError:
        return False
    return state not in "ZX"


def _has_step(events: Path) -> bool:
    try:
        with open(events, "rb") as file:
            return any(b'"event":"step"' in line for line in file)
    except OSError:
        return False


def rate_limited(callback: ProgressCallback | None, every_s: float) -> ProgressCallback:
    """Call at most every `every_s`, but at once when the phase or the step changes."""
    last: list[tuple[str, int | None, str]] = []
    at = [0.0]

    def show(progress: Progress) -> None:
        if callback is None:
            return
        key = (progress.phase, progress.step, progress.message)
        now = time.monotonic()
        if not last or last[0] != key or now - at[0] >= every_s:
            last[:] = [key]
            at[0] = now
            callback(progress)

    return show
