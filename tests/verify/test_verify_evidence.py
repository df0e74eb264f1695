"""What is read from a parity launch: printed losses, precision, packed rows, sketches kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from verify_records import LOSSES, observation, parity_steps

from autotune.records.observation import (
    FlagsRecord,
    ForwardRecord,
    ModelRecord,
    Observation,
    RankObservation,
)
from autotune.records.parity import ParityRecord
from autotune.verify.evidence import parity_evidence, sketches_of
from autotune.verify.logged import read_logged_losses


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["step 0 loss 4.6574", "step 10 loss 4.1000"], {"0": 4.6574, "10": 4.1}),
        (["{'loss': 2.31, 'grad_norm': 1.2, 'epoch': 0.01}"], {"0.01": 2.31}),
        (["epoch 0 step 3/800 loss 6.251100 average 6.3 time 0.5s"], {"3": 6.2511}),
        (["iter 7: train loss 3.1415, val loss 3.2"], {"7": 3.1415}),
        (["step 1 loss 2.0", "step 1 loss 2.1"], {}),  # two ranks: nothing can be matched
        (["saving checkpoint", "lossless 1.5 at step 3"], {}),
    ],
)
def test_printed_losses(tmp_path: Path, lines: list[str], found: dict[str, float]) -> None:
    log = tmp_path / "train.log"
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert read_logged_losses(log) == found
    assert read_logged_losses(tmp_path / "absent.log") == {}


def parity_launch(**rank: object) -> Observation:
    seen = observation([100.0] * len(LOSSES))
    record = ParityRecord(seeded=True, steps=parity_steps(LOSSES))
    first: RankObservation = seen.ranks[0].model_copy(update={"parity": record, **rank})
    return seen.model_copy(update={"ranks": [first]})


def precision(**rank: object) -> str:
    return parity_evidence(parity_launch(**rank), label="x", arm="x", seed=0).precision


def test_precision_is_the_coarsest_in_the_forward() -> None:
    def model(dtype: str) -> ModelRecord:
        return ModelRecord(class_name="M", parameters=9, trainable_parameters=9, parameter_dtypes={dtype: 9})

    assert precision(model=model("torch.float32")) == "fp32"
    assert precision(model=model("float64")) == "fp64"
    assert precision(model=model("torch.bfloat16")) == "half"
    autocast = ForwardRecord(keys=["input_ids"], autocast_dtype="bfloat16")
    assert precision(model=model("torch.float32"), forward=autocast) == "half"
    cuda = observation([1.0]).ranks[0].environment.model_copy(update={"device_type": "cuda"})
    tf32 = {"environment": cuda, "flags": FlagsRecord(tf32_allowed=True)}
    assert precision(model=model("torch.float32"), **tf32) == "tf32"


def test_rows_with_several_examples_are_packed() -> None:
    seen = parity_launch()
    rank = seen.ranks[0]

    def with_rows(rows: int) -> bool | None:
        steps = [
            step.model_copy(update={"shapes": [(rows, 64)], "index": step.index - 1}) for step in rank.steps
        ]
        changed = rank.model_copy(update={"steps": steps})
        return parity_evidence(
            seen.model_copy(update={"ranks": [changed]}), label="x", arm="x", seed=0
        ).packed

    assert with_rows(8) is False and with_rows(1) is True
    left_padded = ForwardRecord(keys=["position_ids"], position_ids_restart=True)
    assert parity_evidence(parity_launch(forward=left_padded), label="x", arm="x", seed=0).packed is True
    assert parity_evidence(parity_launch(), label="x", arm="x", seed=0).packed is None


def test_sketches_are_kept_once_for_ranks_that_agree() -> None:
    seen = parity_launch()
    two = seen.model_copy(
        update={"ranks": [seen.ranks[0], seen.ranks[0].model_copy(update={"rank": 1})], "expected_ranks": 2}
    )
    found = parity_evidence(two, label="x", arm="x", seed=0)
    assert found.ranks[1].steps[0].gradient_sketch == {}
    assert sketches_of(found, 0)[1] == found.ranks[0].steps[0].gradient_sketch
    assert found.ranks[0].steps[5].gradient_sketch == {}  # later steps keep none
