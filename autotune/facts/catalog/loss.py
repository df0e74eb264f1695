"""The language-model head and the loss."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact(
        "loss.logits_gib",
        "float",
        "gib",
        "Bytes of full-vocabulary fp32 logits of the largest micro-batch",
        "derived",
    ),
    Fact(
        "loss.head_gpu_frac",
        "float",
        "frac",
        "Share of GPU busy time in softmax and cross-entropy",
        "trace",
        decided_by="give a trace with GPU activity (analyze records one; --trace reads a saved one)",
    ),
    Fact(
        "loss.unlabelled_text_frac",
        "float",
        "frac",
        "Share of positions through the head that hold text without a label: prompts, not padding",
        "trace",
    ),
    Fact(
        "loss.head_frac",
        "float",
        "frac",
        "Share of the work (GPU busy time, operator time on a CPU) in the output product and the loss",
        "trace",
    ),
    Fact(
        "loss.logits_frac",
        "float",
        "frac",
        "Share of the work in passes over the logits: casts, copies, softmax, loss, their gradients",
        "trace",
    ),
    Fact(
        "loss.unsupervised_frac",
        "float",
        "frac",
        "Share of positions through the head that have no label",
        "derived",
    ),
    Fact(
        "loss.idle_rows_frac",
        "float",
        "frac",
        "Share of the rows of the model's logits to which no gradient comes back, in the warm-up",
        "probe",
    ),
    Fact(
        "loss.head_work_frac",
        "float",
        "frac",
        "Share of the output layer in the work of all matrix products, by parameters, attention left out",
        "derived",
    ),
)
