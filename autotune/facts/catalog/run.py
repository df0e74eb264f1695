"""The run as a whole: what was seen, how long a step takes, how fast useful tokens go through."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact("run.has_gpu", "bool", "", "The job computed on a GPU", "probe"),
    Fact("run.is_training", "bool", "", "Backward and optimizer steps were seen", "derived"),
    Fact("run.world_size", "int", "count", "Ranks in the job", "probe"),
    Fact("run.ranks_seen", "int", "count", "Ranks that reported", "derived"),
    Fact("run.steps_timed", "int", "count", "Unprofiled optimizer steps behind the step time", "probe"),
    Fact("run.steps_seen", "int", "count", "Optimizer steps that were observed, warm-up included", "probe"),
    Fact(
        "run.step_ms", "float", "ms", "Median unprofiled optimizer step, slowest rank of each step", "probe"
    ),
    Fact(
        "run.step_spread_frac",
        "float",
        "frac",
        "Median absolute deviation of the step time over its median",
        "probe",
    ),
    Fact("run.steady", "bool", "", "A steady state of the step time was found", "derived"),
    Fact(
        "run.first_step_ms",
        "float",
        "ms",
        "The first optimizer step, with compilation and warm-up in it",
        "probe",
    ),
    Fact("run.startup_s", "float", "s", "From the start of the command to the first backward", "probe"),
    Fact(
        "run.useful_tokens_per_s",
        "float",
        "tokens_per_s",
        "Non-padding tokens per second over all ranks, unprofiled",
        "derived",
    ),
    Fact(
        "run.all_tokens_per_s",
        "float",
        "tokens_per_s",
        "Tokens with padding per second over all ranks, unprofiled",
        "derived",
    ),
    Fact(
        "run.examples_per_s",
        "float",
        "count",
        "Examples (rows of the batches) per second over all ranks, unprofiled",
        "derived",
    ),
    Fact("run.batches_per_epoch", "int", "count", "Micro-batches one rank takes for an epoch", "probe"),
    Fact("run.optimizer_steps_per_epoch", "float", "count", "Optimizer steps for an epoch", "derived"),
    Fact(
        "run.epochs_planned",
        "float",
        "count",
        "Epochs the job will run, when its arguments say so",
        "command",
    ),
    Fact(
        "run.projected_hours",
        "float",
        "hours",
        "Whole job: start-up, first step, steps, evaluation and saves",
        "derived",
    ),
    Fact(
        "run.model_tflops",
        "float",
        "tflops",
        "Model FLOP per second per GPU: 6 x parameters without the embedding lookup, plus attention",
        "derived",
    ),
    Fact(
        "run.mfu_frac",
        "float",
        "frac",
        "Model FLOP/s over the device's dense peak at the GEMMs' precision",
        "derived",
    ),
    Fact("run.out_of_memory", "bool", "", "The job ended in an out-of-memory error", "probe"),
    Fact("run.incomplete", "bool", "", "The job ended before the planned steps", "probe"),
)
