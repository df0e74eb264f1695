"""Places in the user's code that the observer saw at run time."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Record

# What the call at a site does for the job.
SiteKind = Literal[
    "loader",  # torch DataLoader constructor
    "loader_iterator",  # where an iterator over a DataLoader starts worker processes
    "model_create",  # from_pretrained, from_config, _from_config, a model class constructor
    "config_create",  # a model configuration constructor or AutoConfig.from_pretrained
    "model_call",  # the outermost model's forward called from user code
    "backward",  # Tensor.backward, torch.autograd.backward, accelerator.backward
    "optimizer_create",
    "optimizer_step",
    "zero_grad",
    "clip_grad",
    "checkpoint_enable",  # gradient_checkpointing_enable, apply_activation_checkpointing, checkpoint_wrapper
    "shard",  # fully_shard, FSDP, DistributedDataParallel, accelerator.prepare
    "compile",  # torch.compile, Module.compile
    "device_read",  # .item(), .tolist(), .cpu(), float(t), bool(t), print/format of a device tensor
    "debug_flag",  # set_detect_anomaly, use_deterministic_algorithms, ...
    "carrier",  # TrainingArguments, SFTConfig, Lightning Trainer, Accelerator: objects that carry settings
    "trainer_create",
    "to_device",
    "save",
    "evaluation",  # the call of the training loop that evaluates
    "empty_cache",
    "gc_collect",
    "threads",  # torch.set_num_threads
    # places that take time, seen from beside; their span is not known
    "host_loop",  # a Python loop of the user's
    "host_call",  # a library function that the user's code calls in the step
    "host_line",  # a line of the user's that calls functions without a Python frame
    "beside_work",  # user code between an update and the next batch, or in hooks on gradients
    "one_hot",  # a call of torch.nn.functional.one_hot
    "forward_hook",  # a function of the user's that modules of the model call in every forward
    "host_loading",  # user code below a loader without workers
    "unused_forward",  # a call of the model whose graph nothing used
    "uncached_forward",  # a call of the model that computes a known prefix again
    "repeated_call",  # a module called many times in one step
    "double_precision",  # a switch to fp64, or a call of the model with arguments in fp64
    "growing_work",  # a line of the user's that takes longer from step to step
    "kept_values",  # a name of the user's that holds more in every step
    "graph_break",  # a line of the user's in compiled code at which the graph breaks
    "foreign_forward",  # a call of a module that gets gradients and is in no optimizer
]

# Where the value of an argument came from.
Origin = Literal[
    "literal", "variable", "expression", "star-kwargs", "default", "cli", "config", "env", "unknown"
]


class Span(Record):
    """Exact place of a call: lines from 1, columns in UTF-8 bytes from 0 (as code objects give them)."""

    line: int
    byte_column: int
    end_line: int
    end_byte_column: int


class Argument(Record):
    """One argument as the callee received it."""

    text: str  # short repr; never a secret, never a tensor's values
    origin: Origin = "unknown"
    position: int | None = None  # given by position; None when by keyword


class Frame(Record):
    """One user frame."""

    file: str
    line: int
    function: str


class Site(Record):
    """One call in user code. Without columns from the interpreter `span` is None: then edits are advice."""

    id: str  # stable within a launch
    kind: SiteKind
    callee: str  # module.qualname of what was really called
    file: str  # absolute path
    file_sha256: str
    span: Span | None
    line: int
    function: str
    arguments: dict[str, Argument] = Field(default_factory=dict)
    stack: list[Frame] = Field(default_factory=list)  # user frames outward
    calls: int = 1
    total_ms: float | None = None  # time spent in the call where it was measured
    ranks: list[int] = Field(default_factory=list)
    editable: bool = True  # a real file of the user's (not a package, <string>, notebook)
    detail: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
