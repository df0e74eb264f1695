"""What the batches are made of and how they arrive."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact("data.padding_frac", "float", "frac", "Share of batch tokens that are padding", "probe"),
    Fact("data.supervised_frac", "float", "frac", "Share of non-padding tokens with a label", "probe"),
    Fact("data.batch_size", "float", "count", "Examples per micro-batch and rank, median", "probe"),
    Fact(
        "data.tokens_per_step",
        "float",
        "tokens",
        "Tokens with padding per optimizer step, all ranks, median",
        "probe",
    ),
    Fact(
        "data.useful_tokens_per_step",
        "float",
        "tokens",
        "Non-padding tokens per optimizer step, all ranks, median",
        "probe",
    ),
    Fact("data.max_length_seen", "int", "tokens", "Longest row seen", "probe"),
    Fact("data.accumulation_steps", "float", "count", "Micro-batches per optimizer step", "probe"),
    Fact(
        "data.distinct_shapes_per_100_steps",
        "float",
        "count",
        "Different batch shapes per 100 steps",
        "probe",
    ),
    Fact(
        "data.padding_side", "str", "", "Side the padding is on", "probe", choices=("right", "left", "none")
    ),
    Fact(
        "data.padded_to_fixed_length",
        "bool",
        "",
        "All batches have one length although the examples differ",
        "probe",
    ),
    Fact("data.is_text_batch", "bool", "", "Batches carry token ids of shape (batch, length)", "probe"),
    Fact(
        "data.loader_wait_frac",
        "float",
        "frac",
        "Share of the step spent waiting for the next batch",
        "probe",
    ),
    Fact(
        "data.loader_wait_ms",
        "float",
        "ms",
        "Wait for the next batch per step, median of the slowest rank",
        "probe",
    ),
    Fact("data.loader_workers", "int", "count", "DataLoader worker processes", "probe"),
    Fact("data.pin_memory", "bool", "", "Batches lie in pinned memory", "probe"),
    Fact("data.loader_is_dataloader", "bool", "", "Batches come from a torch DataLoader", "probe"),
    Fact("data.dataset_iterable", "bool", "", "The data set is an IterableDataset", "probe"),
    Fact(
        "data.dataset_picklable", "bool", "", "Dataset and collator can be sent to worker processes", "probe"
    ),
    Fact("data.cpu_cores_per_rank", "float", "count", "CPU cores the job may use per rank", "probe"),
    Fact(
        "data.h2d_blocking_ms",
        "float",
        "ms",
        "Blocking host-to-device copies per step",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact("data.examples_in_dataset", "int", "count", "Examples in the data set", "probe"),
    Fact(
        "data.rank_token_skew_frac",
        "float",
        "frac",
        "How many more non-padding tokens the fullest rank has than the mean rank",
        "probe",
    ),
    Fact(
        "data.length_p99_over_median",
        "float",
        "ratio",
        "99th percentile of example lengths over their median",
        "probe",
    ),
    Fact(
        "data.capped_examples_frac",
        "float",
        "frac",
        "Share of sampled examples that have exactly the largest length",
        "probe",
    ),
    Fact(
        "data.steps_without_labels_frac",
        "float",
        "frac",
        "Share of steps in which no token has a label",
        "probe",
    ),
    Fact("data.persistent_workers", "bool", "", "Worker processes live on between epochs", "probe"),
    Fact("data.prefetch_factor", "int", "count", "Batches each worker makes ahead", "probe"),
    Fact(
        "data.batch_passed_whole",
        "bool",
        "",
        "The model is called with the batch as it left the loader",
        "probe",
    ),
    Fact(
        "data.host_copies_frac",
        "float",
        "frac",
        "Copies between host and device over GPU busy time",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "data.device_copies_frac",
        "float",
        "frac",
        "Copies inside the device over GPU busy time",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
)
