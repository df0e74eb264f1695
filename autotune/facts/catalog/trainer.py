"""The loop and the carrier of its settings."""

from __future__ import annotations

from autotune.facts.fact import Fact

FACTS = (
    Fact(
        "trainer.kind",
        "str",
        "",
        "Who drives the loop",
        "probe",
        choices=("plain", "transformers", "trl", "accelerate", "lightning", "deepspeed"),
    ),
    Fact(
        "trainer.carrier",
        "str",
        "",
        "Class that carries the settings (TrainingArguments, SFTConfig, ...)",
        "probe",
    ),
    Fact(
        "trainer.launcher",
        "str",
        "",
        "Program that starts the ranks",
        "command",
        choices=("python", "torchrun", "accelerate", "deepspeed", "trl", "srun", "other"),
    ),
    Fact(
        "trainer.settings_origin",
        "str",
        "",
        "Where the settings of the carrier come from",
        "probe",
        choices=("call-site", "flag", "config"),
    ),
    Fact(
        "trainer.reference_recomputed",
        "bool",
        "",
        "The settings let a fixed reference model run again in every epoch (precompute_ref_log_probs is off)",
        "probe",
    ),
)
