"""How the job hands packed rows to its model decides whether they are kept apart."""

from __future__ import annotations

import pytest
from facts_of import facts_of

from autotune.records.observation import (
    EnvironmentRecord,
    ForwardRecord,
    ModelRecord,
    RankObservation,
    StepRecord,
)


def facts(forward: ForwardRecord, counters: dict[str, float] | None = None) -> dict[str, object]:
    rank = RankObservation(
        rank=0,
        world_size=1,
        environment=EnvironmentRecord(python="3.11", torch="2.13", packages={"transformers": "5.17.0"}),
        status="stopped",
        steps=[StepRecord(index=1, end_s=1.0, duration_ms=100.0, tokens=512, shapes=[(1, 512)])],
        model=ModelRecord(
            class_name="LlamaForCausalLM",
            model_type="llama",
            transformers=True,
            parameters=10,
            trainable_parameters=10,
            layers=4,
            attn_implementation="sdpa",
            use_cache=False,
        ),
        forward=forward,
        counters=counters or {},
    )
    return facts_of(rank)


def test_positions_that_restart_keep_the_documents_apart() -> None:
    found = facts(ForwardRecord(keys=["input_ids", "position_ids", "labels"], position_ids_restart=True))
    assert found["packing.packed"] is True
    assert found["packing.verdict"] == "isolated"


GAPS = {"labelled_rows": 32.0, "rows_with_label_gaps": 31.0, "label_gaps": 100.0}


def test_labels_alone_tell_of_packed_rows() -> None:
    found = facts(ForwardRecord(keys=["input_ids", "labels"]), GAPS)
    assert found["packing.packed"] is True
    assert found["packing.verdict"] == "leaks"


@pytest.mark.parametrize(
    ("keys", "counters"),
    [
        (["input_ids", "labels"], {}),
        (["input_ids", "labels"], {**GAPS, "rows_with_label_gaps": 10.0}),
        (["input_ids", "attention_mask", "labels"], GAPS),  # a mask of the job's own may keep them apart
    ],
)
def test_rows_that_are_not_packed(keys: list[str], counters: dict[str, float]) -> None:
    assert facts(ForwardRecord(keys=keys), counters)["packing.packed"] is False
