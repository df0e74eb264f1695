"""Two ranks against one: the reduced gradient and the global norm, on real jobs over gloo."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autotune.observe.launch import launch
from autotune.records.verdict import ParityCheck, Verdict
from autotune.verify.arm import Arm, VerifyOptions
from autotune.verify.reduction import NAME
from autotune.verify.trial import run_comparison
from autotune.verify.verdict import recompute

JOB = Path(__file__).parent / "jobs" / "ranks.py"
pytestmark = pytest.mark.job


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unchanged job is started once."""
    return tmp_path_factory.mktemp("ranks")


def compare(folder: Path, shard: str, plant: str, steps: int = 6) -> Verdict:
    command = (
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(JOB), "--shard", shard,
    )  # fmt: skip
    arms = [
        Arm(name="before", command=command, cwd=JOB.parent),
        Arm(name=plant, command=(*command, "--plant", plant), cwd=JOB.parent),
    ]
    options = VerifyOptions(tier="numeric", parity_steps=steps, max_pairs=0, shared_folder=folder / shard)
    return run_comparison(arms, folder=folder / shard / plant, options=options, launch=launch)


def answer(verdict: Verdict, name: str = NAME) -> ParityCheck:
    return next(check for check in verdict.parity.checks if check.name == name)


@pytest.mark.parametrize("shard", ["ddp", pytest.param("fsdp2", marks=pytest.mark.full)])
def test_two_ranks_train_as_one_would(shared: Path, shard: str) -> None:
    verdict = compare(shared, shard, "twin")
    assert verdict.parity.outcome == "equal", verdict.parity.sentence
    check = answer(verdict)
    assert check.outcome == "pass", check.detail
    norm, one_rank = (
        float(text.split()[-1]) for text in check.detail.split("; global norm ")[1].split(", on")
    )
    assert norm == pytest.approx(one_rank, rel=1e-4)
    assert "on one rank" in verdict.parity.sentence
    assert recompute(verdict) == verdict


# In the gate such reductions are judged on records: test_verify_parity.py
@pytest.mark.parametrize(
    ("shard", "plant", "words"),
    [
        pytest.param("ddp", "no-sync", "off the mean of the ranks", marks=pytest.mark.full),
        pytest.param("ddp", "ignored", "the gradient of 3.bias", marks=pytest.mark.full),
        pytest.param("fsdp2", "local-norm", "global norm", marks=pytest.mark.full),
    ],
)
def test_a_wrong_reduction_is_named(shared: Path, shard: str, plant: str, words: str) -> None:
    verdict = compare(shared, shard, plant)
    assert verdict.parity.outcome == "broken", verdict.parity.sentence
    check = answer(verdict)
    assert check.outcome == "fail" and words in check.detail


@pytest.mark.full
@pytest.mark.parametrize("shard", ["ddp", "fsdp2"])
def test_compiled_parts_train_the_same(shared: Path, shard: str) -> None:
    """What a graph keeps to itself is not checked, and no reason to refuse."""
    verdict = compare(shared, shard, "compiled")
    assert verdict.parity.outcome == "equal", verdict.parity.sentence
    assert answer(verdict).outcome == ("pass" if shard == "ddp" else "not-applicable"), answer(verdict).detail


@pytest.mark.full
def test_a_gradient_divided_twice_is_broken(shared: Path) -> None:
    """Clipping hides the factor from the weights, not from the gradient norm."""
    verdict = compare(shared, "ddp", "halved")
    assert verdict.parity.outcome == "broken" and answer(verdict, "gradient norm").outcome == "fail"


@pytest.mark.full
def test_a_rank_that_skips_updates_is_out_of_step(shared: Path) -> None:
    """The job runs to its end: fewer steps on one rank than on the other."""
    verdict = compare(shared, "ddp", "skips-updates", steps=200)
    assert verdict.parity.outcome == "broken", verdict.parity.sentence
    assert "out of step" in verdict.parity.reasons[0], verdict.parity.reasons
