"""What a whole watched run showed: slow faults that a window of twenty steps cannot see."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Document, Record

RemarkKind = Literal[
    "drift",  # steps became slower or faster, gradually
    "jump",  # from one step on
    "slow-stretch",  # for a while
    "pause",  # garbage collection, checkpoints, evaluation, logging
    "slow-steps",  # single steps far above the others
    "throttling",
    "straggler",
    "memory-growth",
    "other-processes",
]


class Remark(Record):
    """One thing that happened over the run, with its figures."""

    kind: RemarkKind
    text: str  # one sentence
    rank: int | None = None
    gpu: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    change_frac: float | None = None
    spent_ms: float | None = None  # in all
    figures: dict[str, float] = Field(default_factory=dict)


class PauseTotal(Record):
    """All pauses of one kind on the lead rank."""

    kind: Literal["checkpoint", "evaluation", "gc", "log"]
    total_ms: float
    share_frac: float  # of the run
    longest_ms: float | None = None  # None: none was long enough to be recorded by itself
    recorded: int = 0  # pauses recorded by themselves


class WatchReport(Document):
    """`watch.json` of a run."""

    command: list[str]
    exit_code: int | None
    wall_s: float
    ranks: int
    expected_ranks: int
    steps: int
    trained_s: float  # from the first step's begin to the last one's end
    median_ms: float | None  # of steps that nothing interrupted
    pauses: list[PauseTotal] = Field(default_factory=list)
    remarks: list[Remark] = Field(default_factory=list)
    unknown: list[str] = Field(default_factory=list)  # what this run could not tell, and why
