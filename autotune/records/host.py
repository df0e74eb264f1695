"""What a rank's training thread did besides training, and what of its work repeats or grows."""

from __future__ import annotations

from pydantic import Field

from autotune.records.base import Record


class HostSamples(Record):
    """Looks at the training thread's stack in the timed steps; shares are of all looks."""

    samples: int
    spent_ms: float = 0.0
    loop_frac: float | None = None  # in the user's Python loop that takes most
    loop_function: str | None = None
    call_frac: float | None = None  # in the library function, not a training library's, that takes most
    call_name: str | None = None
    own_frac: float | None = None  # at one line of the user's itself, outside model, backward and optimizer
    own_function: str | None = None
    beside_frac: float | None = None  # in one function of the user's, between an update and the next batch
    beside_function: str | None = None
    beside_in_hook: bool | None = None  # it is a hook that runs during the backward
    hooks_frac: float | None = None  # in forward hooks of the user's
    hooked_modules: int | None = None
    loading_frac: float | None = None  # in user code below a loader of this process
    loading_function: str | None = None


class ForwardUses(Record):
    """Calls of the outermost model in a few steps of the warm-up."""

    steps: int
    unused_ms_per_step: float | None = None  # a graph was recorded and no output got a gradient
    unused_calls_per_step: float | None = None
    repeated: bool | None = None  # all of them had the inputs of a call that was trained on
    uncached_ms_per_step: float | None = None  # without gradients and cache, each call one token longer
    uncached_calls_per_step: float | None = None
    uncached_in_generate: bool | None = None  # transformers' generate makes all of these calls
    cached_calls_per_step: float | None = None  # without gradients, given a cache
    idle_rows_frac: float | None = None  # rows of the logits to which no gradient came
    idle_rows_classes: int | None = None  # their length


class PassesRecord(Record):
    """How often the job's own loop goes over its data."""

    planned: int


class KeptValues(Record):
    """A name of the user's that holds more in every step."""

    name: str
    function: str
    items_per_step: float
    bytes_per_step: float | None = None
    graph: bool = False  # what is kept has an autograd graph


class GrowthRecord(Record):
    """What grows from step to step."""

    steps: int  # between the two looks
    kept: list[KeptValues] = Field(default_factory=list)
    memory_bytes_per_step: float | None = None  # of the device, or of the process on a CPU
    work_function: str | None = None  # user function that holds the line whose time grows most
    work_ms_per_step: float | None = None  # what that line takes longer with every step


class RepeatedCalls(Record):
    """The module that one training step calls most, at least 16 times per backward; frac of that step."""

    module: str | None = None
    callee: str = ""
    cell: bool = False  # one of torch's recurrent cells
    calls_per_backward: float
    frac: float  # its forwards alone
    call_us: float | None = None
