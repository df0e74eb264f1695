"""transformers' Trainer in bf16: what it is judged by is its own launch in float32."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autotune.observe.launch import launch
from autotune.records.verdict import Verdict
from autotune.verify.arm import Arm, VerifyOptions
from autotune.verify.trial import run_comparison

JOB = Path(__file__).parent / "jobs" / "trainer.py"
pytestmark = [pytest.mark.job, pytest.mark.full]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unchanged job and its float32 launch are made once."""
    return tmp_path_factory.mktemp("trainer")


def compare(folder: Path, name: str, *flags: str) -> Verdict:
    pytest.importorskip("transformers")
    command = (sys.executable, str(JOB))
    arms = [
        Arm(name="before", command=command, cwd=JOB.parent),
        Arm(name=name, command=(*command, *flags), cwd=JOB.parent),
    ]
    options = VerifyOptions(tier="numeric", parity_steps=6, max_pairs=0, shared_folder=folder / "shared")
    return run_comparison(arms, folder=folder / name, options=options, launch=launch)


def test_fused_attention_in_bf16_is_as_near_to_float32(shared: Path) -> None:
    verdict = compare(shared, "sdpa", "--attention", "sdpa")
    assert verdict.parity.outcome == "equal", verdict.parity.sentence
    assert verdict.parity.reference == "used" and "from float32" in verdict.parity.sentence


def test_a_wrong_scale_in_bf16_is_further_away(shared: Path) -> None:
    """Only the gradients of queries and keys show it."""
    verdict = compare(shared, "off", "--attention", "sdpa", "--off", "1.2")
    assert verdict.parity.outcome == "broken", verdict.parity.sentence
    assert any("float32" in reason for reason in verdict.parity.reasons)
