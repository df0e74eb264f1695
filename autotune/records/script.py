"""What a generated training script is filled from: the answer to "which job is this?".

One record per concern; `ScriptContext` holds them all. Every field has the default that the script
uses when nothing was observed, so a context can be filled piece by piece, from a run or by hand.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, model_validator

from autotune.records.base import Document, Record


class TakenOver(Record):
    """One value of the observed job that the script uses."""

    what: str = Field(description="name of the setting in words, e.g. 'learning rate'")
    value: str = Field(description="the value as text")
    source: str = Field(description="where it was seen: `train.py:31`, `TrainingArguments`, a fact name")


class NotTakenOver(Record):
    """One thing of the observed job that the script does not do, or does differently."""

    what: str = Field(description="name of the setting or feature in words")
    reason: str = Field(description="why, and what the script does instead")


class LoraContext(Record):
    """Low-rank adapters (needs `peft`); absent means all parameters are trained."""

    rank: int = Field(default=16, ge=1, description="rank of the update matrices")
    alpha: float = Field(
        default=32.0, description="scale numerator; the update is multiplied by alpha / rank"
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout on the adapter's input")
    target_modules: list[str] | Literal["all-linear"] = Field(
        default="all-linear",
        description="module names that get an adapter; 'all-linear' leaves the output head out",
    )


class ModelContext(Record):
    """Which weights, in which class."""

    path: str | None = Field(default=None, description="folder or hub id; needed unless `config` is given")
    family: str | None = Field(
        default=None, description="model_type, where `config` does not say it; decides what is compiled"
    )
    revision: str | None = Field(default=None, description="hub revision; absent means the default branch")
    config: dict[str, Any] | None = Field(
        default=None,
        description="keyword arguments of the model config with `model_type`, best only those that differ "
        "from the class's defaults (`config.to_diff_dict()`); for models built without a folder",
    )
    weights: Literal["pretrained", "random"] = Field(
        default="pretrained",
        description="'random' initialises from the config with the seed, as `from_config` does",
    )
    tokenizer: str | None = Field(default=None, description="folder or hub id; absent means the model's own")
    trust_remote_code: bool = Field(default=False, description="allow code that ships with the model")
    lora: LoraContext | None = Field(default=None, description="train adapters instead of all parameters")
    liger_layers: bool = Field(
        default=False,
        description="use liger-kernel's norm, RoPE and SwiGLU where it knows the family; needs the package",
    )

    @model_validator(mode="after")
    def _has_a_source(self) -> ModelContext:
        if self.path is None and self.config is None:
            raise ValueError("either `path` or `config` is needed")
        if self.path is None and self.weights == "pretrained":
            raise ValueError("pretrained weights need a `path`; with `config` alone set weights='random'")
        if self.config is not None and "model_type" not in self.config:
            raise ValueError("`config` needs the key `model_type`")
        return self


def source_type(source: str) -> Literal["hook", "jsonl", "parquet", "hub"]:
    """How the script reads a source: Python code, JSONL line by line, or with the `datasets` package."""
    if re.fullmatch(r"[\w./\\-]+:\w+", source):
        return "hook"
    if source.endswith((".jsonl", ".json")):
        return "jsonl"
    return "parquet" if source.endswith(".parquet") else "hub"


class DataContext(Record):
    """Where examples come from and which of their tokens are supervised."""

    source: str = Field(
        description="file or glob (JSONL, parquet), folder or hub id of a data set, or a hook "
        "`package.module:name` or `path/file.py:name`: a function or class that returns examples "
        "(anything iterable, or with `len` and `[i]`)"
    )
    kind: Literal["messages", "prompt_completion", "text", "tokens"] = Field(
        default="messages",
        description="what a row is; tokens: `input_ids`, optionally `labels` and `attention_mask`",
    )
    hook_arguments: dict[str, Any] = Field(
        default_factory=dict,
        description="keyword arguments of the hook, besides its tokenizer",
    )
    tokenizer_argument: str = Field(
        default="tokenizer", description="the hook's parameter that takes the tokenizer, if it has one"
    )
    split: str = Field(default="train", description="split of a hub data set")
    text_column: str = Field(default="text", description="column of plain-text rows")
    messages_column: str = Field(
        default="messages", description="column of chat rows: a list of {role, content}"
    )
    prompt_column: str = Field(
        default="prompt", description="column with the prompt of prompt/completion rows"
    )
    completion_column: str = Field(
        default="completion", description="column with the completion, which is supervised"
    )
    supervise: Literal["all", "assistant"] = Field(
        default="assistant", description="chat rows: all tokens, or those of the assistant's turns"
    )
    append_eos: bool = Field(
        default=True, description="end text and prompt/completion rows with the end token"
    )
    max_length: int = Field(
        default=0, ge=0, description="longest example in tokens; 0 means no limit but the row's length"
    )
    long_examples: Literal["refuse", "split", "truncate"] = Field(
        default="refuse",
        description="longer examples: stop with a count, cut into pieces, or cut off the end",
    )
    streaming: bool = Field(
        default=False,
        description="start before everything is tokenised; shuffles inside windows only; needs `max_steps`",
    )
    eval_source: str | None = Field(default=None, description="held-out data, same kinds as `source`")
    eval_hook_arguments: dict[str, Any] = Field(default_factory=dict, description="as `hook_arguments`")
    shuffle: bool = Field(
        default=True, description="seeded order, new in every epoch; off keeps the source's order"
    )
    shuffle_window: int = Field(
        default=4096,
        ge=1,
        description="examples that are packed together, and shuffled together when streaming",
    )
    cache_dir: str = Field(
        default="token_cache", description="folder for tokenised windows; per node, may be deleted"
    )


class PackingContext(Record):
    """May several examples share a row? Decided by `packing_decision` from the isolation table."""

    requested: bool = Field(
        default=True, description="pack if examples stay apart; off pads one example a row"
    )
    verdict: Literal["isolated", "leaks", "unknown"] = Field(
        default="unknown", description="from the isolation table; only 'isolated' packs"
    )
    reason: str = Field(
        default="not looked up", description="what the verdict rests on; printed in the header"
    )
    boundary_arguments: list[str] = Field(
        default_factory=lambda: [
            "position_ids", "seq_idx", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k",
        ],
        description="boundary keyword arguments the family needs (`cu_seqlens` too for kimi_linear)",
    )  # fmt: skip
    row_tokens: int = Field(
        default=8192, ge=8, description="token budget of one packed row = one micro-batch of one rank"
    )
    fixed_rows: bool = Field(
        default=True, description="fill every row up to `row_tokens`, so that shapes never change"
    )

    @property
    def packs(self) -> bool:
        return self.requested and self.verdict == "isolated"


class BatchContext(Record):
    """What one optimizer step consists of, over all ranks together."""

    examples_per_step: int = Field(
        default=0,
        ge=0,
        description="examples per optimizer step as in the observed job; 0 means `rows_per_step` packed rows",
    )
    rows_per_step: int = Field(
        default=8, ge=1, description="packed rows per step when `examples_per_step` is 0"
    )
    rows_per_micro_batch: int = Field(
        default=1, ge=1, description="unpacked only: padded examples per forward and rank"
    )
    pad_multiple: int = Field(
        default=64, ge=1, description="row lengths that are not fixed are rounded up to this"
    )
    drop_last: bool = Field(default=False, description="leave out the last, smaller step of an epoch")


class OptimizerContext(Record):
    """AdamW and its schedule."""

    learning_rate: float = Field(default=2e-5, gt=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    decay_vectors: bool = Field(
        default=True, description="decay biases and norms too, as one plain parameter group does"
    )
    fused: bool = Field(default=True, description="one kernel for the whole update")
    schedule: str = Field(
        default="cosine",
        description="a name of `transformers.get_scheduler`, e.g. constant, linear, cosine_with_min_lr",
    )
    warmup_steps: int = Field(default=0, ge=0)
    warmup_ratio: float = Field(
        default=0.0, ge=0, le=1, description="share of all steps, used when `warmup_steps` is 0"
    )
    min_lr_ratio: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="last learning rate as a share of the first; only for cosine_with_min_lr",
    )
    schedule_steps: int = Field(
        default=0,
        ge=0,
        description="steps the schedule and its warm-up were made for; they are stretched to the steps that "
        "`rows_per_step` packed rows need; 0: as many as there are",
    )
    max_grad_norm: float = Field(default=1.0, ge=0, description="0 measures the norm without clipping")
    epochs: float = Field(default=1.0, gt=0)
    max_steps: int = Field(default=0, ge=0, description="0 means all `epochs`")


class PrecisionContext(Record):
    """Dtypes by their torch name."""

    compute: Literal["float32", "bfloat16"] = Field(default="bfloat16", description="forward and backward")
    master: Literal["float32", "bfloat16"] = Field(
        default="float32", description="sharded parameters and AdamW states"
    )
    reduce: Literal["float32", "bfloat16"] = Field(
        default="float32", description="gradient reduction and accumulation"
    )
    tf32: bool = Field(default=True, description="allow TF32 in the fp32 matmuls that are left")
    float8: bool = Field(
        default=False, description="torchao float8 linears; changes the numerics, needs compilation"
    )


class ParallelContext(Record):
    """How ranks share the model."""

    replicas: int = Field(
        default=1, ge=1, description="1: one shard group; more: HSDP, shards of world / replicas ranks"
    )
    reshard_after_forward: bool = Field(
        default=True,
        description="free a block's parameters between forward and backward; off costs memory, saves traffic",
    )
    prefetch_blocks: int = Field(
        default=1, ge=0, description="blocks whose parameters are fetched ahead, more than one rank"
    )
    accumulate_unsharded: bool = Field(
        default=True,
        description="reduce gradients once per step; off reduces every micro-batch and saves memory",
    )


class MemoryContext(Record):
    """What is recomputed instead of kept."""

    checkpointing: Literal["none", "selective", "full"] = Field(
        default="full", description="selective computes a block's largest part again, as a rule the MLP"
    )
    checkpoint_every: int = Field(default=1, ge=1, description="checkpoint every k-th block only")
    compile: Literal["auto", "blocks", "parts", "never"] = Field(
        default="auto",
        description="torch.compile of the loss and of each block, or of its norms and MLPs ('parts'); "
        "'auto': blocks of families known to have no graph breaks, else parts",
    )
    compile_on: Literal["cuda", "cpu"] = Field(
        default="cuda", description="the device type on which anything is compiled"
    )


class LossContext(Record):
    """The loss over the vocabulary, and attention."""

    head: Literal["chunked", "liger", "model"] = Field(
        default="chunked", description="own chunked loss, liger-kernel's, or the model's full logits"
    )
    chunk_elements: int = Field(
        default=1 << 29, ge=1, description="logits that 'chunked' makes at a time; 2 to 12 bytes each"
    )
    attention: str = Field(
        default="auto",
        description="'auto': flash-attn when installed, else 'varlen'; 'varlen': torch's varlen kernel, on "
        "CPU SDPA example by example; else any name transformers knows",
    )


class RunContext(Record):
    """Where results go and how often."""

    output_dir: str = Field(default="output", description="checkpoints, metrics.jsonl, exported model")
    seed: int = Field(default=42, description="weights, order of the data, dropout")
    log_every: int = Field(default=10, ge=1, description="optimizer steps per log line")
    eval_every: int = Field(
        default=0, ge=0, description="optimizer steps; 0 evaluates at the end only, if there is data"
    )
    save_every: int = Field(
        default=500, ge=0, description="optimizer steps; 0 saves at the end and on SIGTERM only"
    )
    keep_checkpoints: int = Field(default=2, ge=1, description="older ones of this script are removed")
    export: bool = Field(default=True, description="write a Hugging Face folder at the end")
    tracker: Literal["none", "wandb", "mlflow", "tensorboard"] = Field(
        default="none", description="beside console and JSONL"
    )
    project: str = Field(default="fsdp2", description="the tracker's project or experiment")
    peak_tflops: float = Field(
        default=0.0,
        ge=0,
        description="dense peak of one device at the compute dtype, for MFU; 0 logs TFLOPS instead",
    )


class ScriptContext(Document):
    """Everything the FSDP2 template needs."""

    title: str = Field(default="Fine-tuning", description="first words of the script's docstring")
    run_id: str | None = Field(
        default=None, description="the observed run; absent when generated without one"
    )
    observed_command: str | None = Field(default=None, description="the command that was observed")
    file_name: str = Field(
        default="train_fsdp2.py", description="name used in the launch lines of the header"
    )
    processes: int = Field(default=1, ge=1, description="ranks of the observed job, for the launch line")
    taken_over: list[TakenOver] = Field(default_factory=list)
    not_taken_over: list[NotTakenOver] = Field(default_factory=list)
    model: ModelContext
    data: DataContext
    packing: PackingContext = PackingContext()
    batch: BatchContext = BatchContext()
    optimizer: OptimizerContext = OptimizerContext()
    precision: PrecisionContext = PrecisionContext()
    parallel: ParallelContext = ParallelContext()
    memory: MemoryContext = MemoryContext()
    loss: LossContext = LossContext()
    run: RunContext = RunContext()
