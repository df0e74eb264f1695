"""The card of a run: what was asked, when, and how far it came."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Document, Record

RunKind = Literal["job", "trace"]
RunState = Literal[
    "started",
    "observed",
    "diagnosed",
    "planned",
    "verified",
    "optimizing",
    "optimized",
    "undecided",
    "interrupted",
    "failed",
]


class OwnerProcess(Record):
    """The autotune process that makes the run."""

    pid: int
    host: str
    started: str | None = None  # tells it from a later process with the same number


class RunRecord(Document):
    """`run.json` in a run folder."""

    id: str
    kind: RunKind
    created: str  # ISO 8601, UTC
    autotune: str  # version that made the run
    state: RunState
    command: list[str] = Field(default_factory=list)  # empty for saved traces
    cwd: str = ""
    traces: list[str] = Field(default_factory=list)
    wheelhouse: str | None = None
    allow_write: list[str] = Field(default_factory=list)
    error: str | None = None  # the line that was shown when it failed
    process: OwnerProcess | None = None
    options: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
