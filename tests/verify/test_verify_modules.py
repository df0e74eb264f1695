"""What is made of single modules on captured inputs, on records."""

from __future__ import annotations

from typing import Any

import pytest
from verify_records import evidence

from autotune.records.parity import ModuleRecord
from autotune.records.verdict import ParityCheck, ParityEvidence
from autotune.verify.modules import check_modules

FAILED = ParityCheck(name="gradients", outcome="fail", detail="")


def arm(**changes: Any) -> ParityEvidence:
    values = {
        "name": "layers.0.attention",
        "kind": "Attention",
        "output_error_frac": 0.002,
        "input_error_frac": 0.003,
        "parameter_error_frac": {"query": 0.004, "value": 0.004, "key.bias": 0.6},
        **changes,
    }
    return evidence(record={"modules": [ModuleRecord.model_validate(values)]}, precision="half")


def check(candidate: ParityEvidence, *others: ParityCheck, alone: bool = True) -> tuple[str, str]:
    found = check_modules(arm(), candidate, others, alone=alone)
    assert found is not None
    return found.outcome, found.detail


def test_as_near_as_before_passes_and_nearer_too() -> None:
    assert check(arm()) == (
        "pass",
        "1 kind of modules on captured inputs, 0.003 from float32 (unchanged: 0.003)",
    )
    assert check(arm(output_error_frac=0.0, input_error_frac=0.0))[0] == "pass"
    assert check(arm(parameter_error_frac={"query": 0.02, "key.bias": 2.0}))[0] == "pass"  # rounding


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"output_error_frac": 0.02}, "output 0.02 from float32 on the same inputs, unchanged 0.002"),
        ({"input_error_frac": 0.1}, "gradient of its input 0.1"),
        ({"parameter_error_frac": {"query": 0.1}}, "gradient of query 0.1"),
        ({"output_error_frac": float("nan")}, "output nan"),
    ],
)
def test_further_than_before_fails_and_names_the_module(changes: dict[str, Any], said: str) -> None:
    outcome, detail = check(arm(**changes))
    assert outcome == "fail" and said in detail and detail.startswith("layers.0.attention (Attention): ")


def test_beside_a_float32_launch_it_only_names_the_module_of_another_failure() -> None:
    off = arm(output_error_frac=0.5)
    assert check(off, alone=False)[0] == "not-applicable"
    assert check(off, FAILED, alone=False)[0] == "fail"


def test_what_was_not_checked_is_no_pass() -> None:
    assert check(arm(unknown="called with other shapes")) == (
        "not-applicable",
        "not checked: called with other shapes",
    )
    assert check(evidence(precision="half"))[0] == "not-applicable"
    assert check_modules(evidence(), arm(), [], alone=True) is None
