"""What the parent asked of this launch: read once from settings.json beside the boot file."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Settings:
    """What the launch side decided; keys of the file that are not listed here are ignored."""

    folder: str  # absolute launch folder: hello/ and raw/ lie below it
    mode: str = "timing"  # profile | timing | parity | watch
    steps: int = 20  # timed, unprofiled steps after warm-up
    warmup_steps: int = 10  # at most
    profile_steps: int = 1
    profile_ranks: tuple[int, ...] = (0,)
    budget_s: float | None = None  # wall time of the timing window
    least_s: float | None = None  # the timing window of short steps is at least as long
    stop: str = "soft"  # soft | hard | never
    stop_grace_s: float = 20.0
    seed: int | None = None
    seed_shift: int = 0  # added to the seeds that the job itself sets
    deterministic: bool = False
    isolation: bool = False
    example_steps: int = 2  # parity: steps in which every example's own loss is kept
    full_precision: bool = False
    module_inputs: str = ""  # file of captured inputs of single modules
    keep_module_inputs: bool = False  # this launch writes it
    longest_first: bool = False
    longest_times: int = 8  # how often that batch comes
    memory_probe: tuple[int, ...] = ()  # per step: blocks at the front that run without checkpointing
    protect: bool = True
    protected_roots: tuple[str, ...] = ()
    kept_in_temporary: tuple[str, ...] = ()  # real paths that were there before the launch
    allow_write: tuple[str, ...] = ()
    sandbox: str = ""
    fingerprint_files: tuple[str, ...] = ()
    user_roots: tuple[str, ...] = ()
    max_trace_events: int = 3_000_000
    segment_s: float = 0.5  # first length of the stretches of a watched run

    @property
    def raw(self) -> str:
        return os.path.join(self.folder, "raw")

    @property
    def full(self) -> bool:
        """Everything is observed; the other modes carry only what timing and checks need."""
        return self.mode == "profile"


def load(path: str) -> Settings:
    """Settings from a JSON file; lists become tuples, unknown keys are ignored."""
    with open(path, encoding="utf-8") as file:
        raw: dict[str, Any] = json.load(file)
    known = {f.name for f in fields(Settings)}
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items() if k in known}
    settings = Settings(**values)
    if not settings.sandbox:
        settings = Settings(**{**values, "sandbox": os.path.join(settings.folder, "sandbox")})
    return settings
