"""Whole comparisons of real, tiny CPU jobs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autotune.errors import JobFailedError
from autotune.observe.launch import launch
from autotune.records.verdict import Verdict
from autotune.store import read_record
from autotune.verify.arm import Arm, VerifyOptions
from autotune.verify.trial import run_comparison
from autotune.verify.verdict import recompute

JOB = Path(__file__).parent / "jobs" / "tiny.py"
pytestmark = pytest.mark.job


def arm(name: str, *flags: str, **changes: object) -> Arm:
    command = (sys.executable, str(JOB), *flags)
    return Arm(name=name, command=command, cwd=JOB.parent, warmed=True, **changes)  # type: ignore[arg-type]


def compare(folder: Path, before: Arm, after: Arm, **options: object) -> Verdict:
    settings = {"steps": 12, "warmup_steps": 1, "parity_steps": 6, "max_pairs": 4, **options}
    return run_comparison(
        [before, after],
        folder=folder,
        options=VerifyOptions(**settings),  # type: ignore[arg-type]
        launch=launch,
    )


@pytest.mark.full  # tests/optimize/test_loop.py has such a comparison in the gate
def test_removed_sleep_is_faster_and_trains_the_same(tmp_path: Path) -> None:
    verdict = compare(tmp_path, arm("baseline", "--sleep-ms", "90"), arm("patched"), tier="bitwise")
    assert verdict.outcome == "faster", verdict.sentence
    assert 3.0 < (verdict.ratio or 0) < 12.0
    assert verdict.parity.outcome == "equal" and verdict.parity.used == "bitwise"
    assert len(verdict.parity.steps) == 6
    stored = read_record(tmp_path / "verdict.json", Verdict)
    assert recompute(stored) == stored


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for comparisons of the same baseline: its launches are made once."""
    return tmp_path_factory.mktemp("verify")


def test_another_learning_rate_is_caught_before_timing(shared: Path) -> None:
    verdict = compare(shared, arm("baseline"), arm("patched", "--lr", "1.1e-3"), tier="numeric")
    assert verdict.outcome == "parity-broken", verdict.sentence
    assert not [trial for trial in verdict.trials if trial.purpose == "timing"]


@pytest.mark.full
def test_a_job_that_slows_down_has_no_steady_state(tmp_path: Path) -> None:
    """Nothing is claimed from its steps, however different the arms are; two blocks, twice each."""
    slower = ("--slower-each-step-ms", "15")
    arms = arm("baseline", *slower, "--sleep-ms", "30"), arm("patched", *slower)
    verdict = compare(tmp_path, *arms, tier=None)
    assert verdict.outcome == "no-steady-state" and verdict.ratio is None, verdict.sentence
    assert "still getting longer" in verdict.sentence
    assert [(trial.block, trial.attempt) for trial in verdict.trials] == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_seeds_reach_a_job_that_sets_its_own(tmp_path: Path) -> None:
    """Its own seed is moved, else all launches of a comparison over seeds would be the same launch."""
    verdict = compare(
        tmp_path, arm("baseline"), arm("patched"), tier="statistical", steps=6, max_pairs=2, parity_steps=5
    )
    assert verdict.parity.outcome == "equal", verdict.sentence
    found = [e for e in verdict.parity_evidence if e.arm == "baseline"]
    assert [e.seed for e in found] == [0, 1, 2]
    assert len({e.ranks[0].initial_weights_digest for e in found}) == 3


def test_a_crash_of_the_candidate_is_its_outcome(shared: Path) -> None:
    verdict = compare(shared, arm("baseline"), arm("patched", "--crash-at", "3"), tier="numeric")
    assert verdict.outcome == "candidate-crashed" and "planted crash" in verdict.sentence


def test_a_crash_of_the_baseline_ends_everything(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match="planted crash"):
        compare(tmp_path, arm("baseline", "--crash-at", "0"), arm("patched"), tier="numeric")


@pytest.mark.full
@pytest.mark.parametrize(
    ("flag", "outcome", "words"),
    [
        ("--clock-seed", "undecided", "starts from different weights at every launch"),
        ("--nan", "refused", "loss is not a number in step 1"),
    ],
)
def test_a_baseline_that_proves_nothing_is_not_timed(
    tmp_path: Path, flag: str, outcome: str, words: str
) -> None:
    arms = arm("baseline", flag, "--sleep-ms", "40"), arm("patched", flag)
    verdict = compare(tmp_path, *arms, tier="numeric", speed_when_unproven=False)
    assert (verdict.outcome, verdict.parity.outcome) == ("undecided", outcome), verdict.sentence
    assert words in verdict.sentence
    assert {trial.purpose for trial in verdict.trials} == {"parity"}


@pytest.mark.full
def test_a_job_that_fails_at_every_third_start_is_proven_all_the_same(tmp_path: Path) -> None:
    """It also saves at every step and writes without ever ending a line."""
    flags = ("--flaky", str(tmp_path / "starts"), "--saves-to", str(tmp_path / "model.pt"), "--loud")
    arms = arm("baseline", *flags, "--sleep-ms", "60"), arm("patched", *flags)
    allowed = (tmp_path / "starts",)
    verdict = compare(tmp_path / "run", *arms, tier="bitwise", allow_write=allowed)
    assert verdict.outcome == "faster", verdict.sentence
    assert any("did not answer" in note for note in verdict.notes)
    assert any(trial.outcome == "crashed" for trial in verdict.trials)
    assert not (tmp_path / "model.pt").exists()
