"""What a parity launch showed of the training itself: losses, gradients and examples of each step."""

from __future__ import annotations

from pydantic import Field

from autotune.records.base import Record


class ParityStep(Record):
    """What parity compares, for one optimizer step of one rank, in a process of its own."""

    index: int
    losses: list[float]  # one per micro-batch, full precision
    loss_weights: list[int] = Field(default_factory=list)  # supervised tokens behind each loss
    grad_norm: float | None = None
    examples_digest: str | None = None  # multiset of (context, label) of the step
    examples: int | None = None
    supervised_tokens: int | None = None
    gradient_sketch: dict[str, list[float]] = Field(default_factory=dict)  # parameter -> [norm, buckets]
    # First steps of several ranks: parameter -> buckets of this rank's own gradient before it is reduced
    own_gradient: dict[str, list[float]] = Field(default_factory=dict)
    # First steps only: digest of an example -> [summed negative log likelihood, labels that count]
    example_losses: dict[str, list[float]] = Field(default_factory=dict)


class IsolationRecord(Record):
    """One example of a packed row replaced by noise; changes relative to the largest logit."""

    examples: int
    before_change_frac: float  # change of logits before the replaced example: causality
    after_change_frac: float  # change of logits of later examples: leak
    repeat_change_frac: float  # the same forward twice: the zero of this machine
    gradient_change_frac: float | None = None  # gradient of others' outputs at its tokens, of the largest
    gradient_unknown: str = ""  # why the backward was not tested


class ModuleRecord(Record):
    """One module on captured inputs: how far its forward and backward are from float32, relative."""

    name: str
    kind: str = ""  # its class
    output_error_frac: float | None = None
    input_error_frac: float | None = None  # gradients of its inputs
    parameter_error_frac: dict[str, float] = Field(default_factory=dict)  # gradients of its parameters
    unknown: str = ""  # why it was not checked


class ParityRecord(Record):
    """Parity facts of one rank."""

    initial_weights_digest: str | None = None
    initial_values_digest: str | None = None  # as float32; only where half precision is concerned
    final_weights_digest: str | None = None
    full_precision: bool = False  # the launch was made to compute everything in float32
    half_arithmetic: list[str] = Field(default_factory=list)  # what computed in half precision in step 1
    seeded: bool = False
    dropout_active: bool | None = None
    steps: list[ParityStep] = Field(default_factory=list)
    isolation: list[IsolationRecord] = Field(default_factory=list)
    isolation_error: str | None = None
    modules: list[ModuleRecord] = Field(default_factory=list)
    reduction_unknown: str = ""  # why the ranks' own gradients were not seen
