"""Hand-written records for the pure parts: what ranks would have reported."""

from __future__ import annotations

from typing import Any

from autotune.records.observation import (
    EnvironmentRecord,
    MemoryRecord,
    Observation,
    RankObservation,
    StepRecord,
)
from autotune.records.parity import IsolationRecord, ParityRecord, ParityStep
from autotune.records.verdict import ParityEvidence, Trial, TrialStep

LOSSES = [5.0, 4.6, 4.3, 4.1, 3.9, 3.8, 3.7, 3.6, 3.55, 3.5, 3.46, 3.42]


def parity_steps(losses: list[float], **same: Any) -> list[ParityStep]:
    """One micro-batch a step with eight examples and a small gradient sketch."""
    return [
        ParityStep(
            **{
                "index": i,
                "losses": [loss],
                "loss_weights": [100],
                "grad_norm": 1.0 + 0.01 * i,
                "examples_digest": f"{1000 + i:032x}",
                "examples": 8,
                "supervised_tokens": 100,
                "gradient_sketch": {"a.weight": [1.0, 0.6, -0.8], "b.weight": [0.1, 0.06, 0.08]},
                **same,
            }
        )
        for i, loss in enumerate(losses)
    ]


def evidence(
    arm: str = "baseline", losses: list[float] | None = None, *, ranks: int = 1, **changes: Any
) -> ParityEvidence:
    """Evidence of one parity launch; `steps`, `record` and evidence fields can be given."""
    steps = changes.pop("steps", None) or parity_steps(losses or LOSSES)
    record = ParityRecord(
        **{
            "initial_weights_digest": "w0",
            "final_weights_digest": "w1",
            "seeded": True,
            "dropout_active": False,
            "steps": steps,
            **changes.pop("record", {}),
        }
    )
    fields = {"label": f"parity-{arm}", "arm": arm, "seed": 0, "expected_ranks": ranks, "precision": "fp32"}
    return ParityEvidence(**{**fields, "ranks": [record] * ranks, "packed": False, **changes})


def isolation(after: float = 0.0, before: float = 0.0, repeat: float = 0.0) -> IsolationRecord:
    return IsolationRecord(
        examples=4, before_change_frac=before, after_change_frac=after, repeat_change_frac=repeat
    )


def timing_trial(
    arm: str, block: int, durations_ms: list[float], *, position: int = 0, **changes: Any
) -> Trial:
    """A finished timing launch; per-step fields as lists, e.g. real_tokens=[...]."""
    per_step = {
        name: changes.pop(name)
        for name in ("real_tokens", "tokens", "examples", "tags", "loader_wait_ms")
        if name in changes
    }
    steps = [
        TrialStep(index=i + 1, rank_ms=[ms], **{name: values[i] for name, values in per_step.items()})
        for i, ms in enumerate(durations_ms)
    ]
    fields = {"outcome": "finished", "ranks": 1, "expected_ranks": 1, "wall_s": 10.0}
    return Trial(
        **{
            "label": f"timing-{block:02d}-{arm}",
            "arm": arm,
            "purpose": "timing",
            "block": block,
            "position": position,
            "steps": steps,
            **fields,
            **changes,
        }
    )


def observation(
    durations_ms: list[float], *, ranks: int = 1, status: str = "stopped", **changes: Any
) -> Observation:
    """A timing launch of `ranks` ranks that all took these steps."""
    memory = changes.pop("memory", MemoryRecord())
    steps = [
        StepRecord(index=i + 1, end_s=float(i), duration_ms=ms, tags=["first"] if i == 0 else [])
        for i, ms in enumerate(durations_ms)
    ]
    found = [
        RankObservation.model_validate(
            {
                "rank": rank,
                "world_size": ranks,
                "environment": EnvironmentRecord(python="3.11", torch="2.13"),
                "status": status,
                "startup_s": 4.0,
                "steps": steps,
                "memory": memory,
            }
        )
        for rank in range(ranks)
    ]
    fields = {"exit_code": 0, "wall_s": 10.0, "ranks": found, "expected_ranks": ranks}
    return Observation(**{"mode": "timing", "command": ["python"], "cwd": "/", **fields, **changes})
