"""The result of an optimize loop: rungs kept, changes dropped and why, and the journal behind it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Document, Record

LoopState = Literal["running", "finished", "budget", "interrupted", "failed"]


class Rung(Record):
    """One kept change, or the job as it was (the first rung)."""

    name: str
    groups: list[str] = Field(default_factory=list)
    rules: list[str] = Field(default_factory=list)
    ratio_to_previous: float | None = None
    interval_to_previous: tuple[float, float] | None = None
    ratio_to_first: float | None = None
    interval_to_first: tuple[float, float] | None = None
    pairs: int = 0
    useful_tokens_per_s: float | None = None
    step_ms: float | None = None
    projected_hours: float | None = None
    batches_per_epoch: float | None = None
    optimizer_steps_per_epoch: float | None = None
    peak_memory_gib: float | None = None
    predicted_peak_gib: float | None = None  # of a memory plan, for the longest batch
    longest_peak_gib: float | None = None  # the same, measured before the plan was tried
    gpu_busy_frac: float | None = None
    mfu_frac: float | None = None
    parity: str = ""  # the sentence of the parity check
    verdict: str | None = None  # path of the verdict record, relative to the run
    predicted_upper: float | None = None  # the rule's bound, for calibration


class Dropped(Record):
    """A change that is not among the kept ones, and why."""

    group: str
    rules: list[str]  # of several changes where these were tried together only
    reason: str
    verdict: str | None = None
    how: Literal["not-kept", "not-decided", "not-tried"] = "not-kept"
    ratio: float | None = None  # what was measured where that decides nothing


class Conventional(Record):
    """The usual optimisations of a training job: what the unchanged one had, and what lies beyond them."""

    had: list[str] = Field(default_factory=list)  # or would gain nothing by
    given: list[str] = Field(default_factory=list)  # by kept changes
    lacking: list[str] = Field(default_factory=list)  # and not mended here
    unknown: list[str] = Field(default_factory=list)
    ratio: float | None = None  # the result against the job with all of them; None where one is lacking


class Ladder(Document):
    """`ladder.json` of an optimize run."""

    run: str
    state: LoopState
    rungs: list[Rung]
    dropped: list[Dropped] = Field(default_factory=list)
    advice: list[str] = Field(default_factory=list)  # what only a human can decide, one line each
    conventional: Conventional | None = None
    notes: list[str] = Field(default_factory=list)  # of the comparisons, each with its trial
    stop_reason: str = ""
    go_on: str = ""  # the command that goes on, where a limit ended the loop
    trials: int = 0
    minutes: float = 0.0
    outcome: Literal["faster", "nothing-to-do", "nothing-kept", "undecided"] = "nothing-to-do"
