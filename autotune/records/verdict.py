"""The verdict of a comparison: which of several launch commands is faster, and whether training is unchanged.

Self-contained: the machine, the versions, the commands, the seeds and every step of every launch are in it,
so that `autotune.verify.verdict.recompute` gives the same answer from the record alone.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Document, Record
from autotune.records.observation import EnvironmentRecord, StepTag
from autotune.records.parity import ParityRecord
from autotune.records.terms import Tier

STOPPED_AFTER = "stopped after"  # begins the note of a comparison whose minutes ran out
SpeedOutcome = Literal["faster", "slower", "no-measurable-change", "undecided"]
ParityOutcome = Literal["equal", "broken", "undecided", "refused", "baseline-incorrect", "not-run"]
TrialOutcome = Literal["finished", "crashed", "not-finished", "too-few-steps", "no-steady-state"]
Outcome = Literal[
    "faster",
    "slower",
    "no-measurable-change",
    "undecided",
    "parity-broken",
    "baseline-incorrect",
    "patch-not-live",
    "out-of-memory-risk",
    "candidate-crashed",
    "no-steady-state",
    "not-finished",
]
Purpose = Literal["warm", "parity", "reference", "live", "timing", "longest", "memory"]
ReferenceState = Literal["not-needed", "used", "unknown"]
Unit = Literal["ms/step", "useful tokens/s", "steps/s"]


class TrialStep(Record):
    """One optimizer step of one launch, all ranks; durations in rank order, counts summed over ranks."""

    index: int
    rank_ms: list[float]
    examples: int | None = None
    tokens: int | None = None  # with padding
    real_tokens: int | None = None
    supervised_tokens: int | None = None
    micro_batches: int | None = None
    loader_wait_ms: float | None = None  # of the rank that waited longest
    new_shape: bool | None = None  # a batch shape this launch had not met before
    tags: list[StepTag] = Field(default_factory=list)

    @property
    def slowest_ms(self) -> float:
        """The step takes as long as its slowest rank."""
        return max(self.rank_ms)


class MachineState(Record):
    """GPU clocks and neighbours while one launch ran; None where nothing was sampled."""

    samples: int = 0
    sm_clock_mhz: float | None = None  # mean over GPUs and samples under load
    throttle_reasons: list[str] = Field(default_factory=list)
    foreign_processes: int | None = None  # the most seen at once
    cpu_cores: int | None = None  # the launch might use
    cpu_foreign_cores: float | None = None  # of them other programs took, on average
    cpu_idle_frac: float | None = None


class MemoryPeak(Record):
    """The most memory any rank held, bytes; None where it was not measured."""

    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    host_rss_bytes: int | None = None
    device_bytes: int | None = None


class Trial(Record):
    """One launch of one arm."""

    label: str  # its folder, seen from the verification folder
    arm: str
    purpose: Purpose
    block: int | None = None  # counts from 1; timing only
    position: int | None = None  # place within its block, from 0
    attempt: int = 1
    outcome: TrialOutcome
    reason: str = ""
    reused: bool = False  # made for an earlier comparison of the same run
    exit_code: int | None = None
    started_at: str = ""  # UTC, ISO 8601
    wall_s: float = 0.0
    startup_s: float | None = None
    ranks: int = 0
    expected_ranks: int = 0
    fingerprints: list[str | None] = Field(default_factory=list)  # rank order
    steps: list[TrialStep] = Field(default_factory=list)
    memory: MemoryPeak = Field(default_factory=MemoryPeak)
    machine: MachineState = Field(default_factory=MachineState)
    log_tail: list[str] = Field(default_factory=list)  # only of launches that failed
    compiling: bool = (
        False  # a baseline that compiles to its end: such steps are its speed, as far as was seen
    )
    longest_tokens: int | None = None  # the longest examples of the data set came first, and were this long


class ArmRecord(Record):
    """One of the commands compared; the first arm is the baseline."""

    name: str
    command: list[str]
    cwd: str
    environment: dict[str, str | None] = Field(default_factory=dict)  # variables the arm sets or takes away
    python_path: list[str] = Field(default_factory=list)
    fingerprint: str | None = None
    software: EnvironmentRecord | None = None  # as rank 0 saw it
    memory: MemoryPeak = Field(default_factory=MemoryPeak)  # over all its timing launches
    worst_case_bytes: int | None = None  # projected peak at the longest batch the data can make
    useful_tokens_per_s: float | None = None  # median over its timing launches, or of what its pairs compare
    step_ms: float | None = None  # likewise


class RunFigure(Record):
    """The figure of one timing launch."""

    label: str
    steady_from: int  # index of the first step that counts
    steps_used: int
    steps_excluded: int  # after steady_from, because of a tag on either side
    value: float


class Block(Record):
    """One round in which every arm ran once."""

    number: int
    order: list[str]
    figures: dict[str, RunFigure]  # arm -> figure
    set_aside: str | None = None  # why the block does not count


class Contrast(Record):
    """One arm against another: how many times as fast the second is."""

    reference: str
    candidate: str
    outcome: SpeedOutcome
    ratio: float | None = None
    interval: tuple[float, float] | None = None  # at `confidence`
    confidence: float = 0.98
    pairs: int = 0
    pair_ratios: list[float] = Field(default_factory=list)
    unit: Unit
    unit_reason: str = ""
    reference_value: float | None = None  # median over launches, in `unit`
    candidate_value: float | None = None
    sentence: str


class ParityEvidence(Record):
    """What one parity launch recorded, with what is needed to judge it."""

    label: str
    arm: str
    seed: int | None
    deterministic: bool = False
    ranks: list[ParityRecord]
    expected_ranks: int
    precision: Literal["fp64", "fp32", "tf32", "half"]
    full_precision: bool = False  # the baseline in float32: what half precision is judged against
    experts: bool = False  # a mixture-of-experts model
    packed: bool | None = None  # rows that hold several examples
    real_tokens: list[int | None] = Field(default_factory=list)  # per step, summed over ranks
    logged: dict[str, float] = Field(default_factory=dict)  # losses the job printed, by the step it named
    # Step -> parameter -> buckets of the gradient before reduction, added up over all ranks
    contributions: dict[int, dict[str, list[float]]] = Field(default_factory=dict)


class ParityStepResult(Record):
    """One step compared; losses are means over supervised tokens of all ranks."""

    index: int
    baseline: float
    repeat: float | None
    candidate: float
    difference_frac: float  # (candidate - baseline) / |baseline|
    tolerance_frac: float
    baseline_grad_norm: float | None = None
    candidate_grad_norm: float | None = None
    equal: bool


class ParityCheck(Record):
    """One question of the parity test and its answer."""

    name: str
    outcome: Literal["pass", "fail", "undecided", "not-applicable"]
    detail: str


class ParityResult(Record):
    """Whether training is unchanged; `sentence` is ready to print."""

    tier: Tier  # asked for
    used: Tier  # after falling from bitwise where the baseline does not repeat itself
    outcome: ParityOutcome
    sentence: str
    reasons: list[str] = Field(default_factory=list)
    checks: list[ParityCheck] = Field(default_factory=list)
    steps: list[ParityStepResult] = Field(default_factory=list)
    largest_difference_frac: float | None = None
    noise_frac: float | None = None  # largest difference of the baseline against itself
    reference: ReferenceState = "not-needed"  # the baseline in float32


class LiveCheck(Record):
    """Whether the change is really in effect in the candidate."""

    arm: str
    fingerprint: Literal["reported", "missing", "different", "not-asked"]
    faults: list[str] = Field(default_factory=list)
    rules: list[str] = Field(default_factory=list)  # changes that a fresh profile shows not to be in effect
    checked: list[str] = Field(default_factory=list)  # what a fresh profile proved


class Settings(Record):
    """What the comparison was asked to do; enough to recompute and to repeat it."""

    tier: Tier | None
    min_pairs: int
    max_pairs: int
    steps: int
    warmup_steps: int
    parity_steps: int
    seed: int | None
    seeds: list[int] = Field(default_factory=list)  # statistical tier
    max_minutes: float | None = None
    self_check: bool = False


class Verdict(Document):
    """The answer of `verify`. Top-level numbers compare the last arm with the first."""

    outcome: Outcome
    sentence: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    unit: Unit = "ms/step"
    pairs: int = 0
    parity: ParityResult
    unit_reason: str = ""
    contrasts: list[Contrast] = Field(default_factory=list)  # each arm against the first, then neighbours
    arms: list[ArmRecord]
    trials: list[Trial]
    blocks: list[Block] = Field(default_factory=list)
    parity_evidence: list[ParityEvidence] = Field(default_factory=list)
    reference_unknown: str | None = None  # why the baseline in float32 could not be had
    live: list[LiveCheck] = Field(default_factory=list)
    settings: Settings
    failed_arm: str | None = None
    failure: str | None = None  # why, with the job's last lines in the trial
    noise_floor_frac: float | None = None  # self-check: half width of A against A
    machine: str = ""
    minutes_spent: float = 0.0
    notes: list[str] = Field(default_factory=list)

    @property
    def accepted(self) -> bool:
        """Faster, live, and training unchanged as far as its tier can tell (tier None: not asked)."""
        return self.outcome == "faster"
