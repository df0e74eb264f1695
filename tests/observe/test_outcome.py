"""What counts as a failure of the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.observe.outcome import job_failed
from autotune.records.observation import Observation
from autotune.store import read_record

RECORDED = Path(__file__).parents[1] / "notebook" / "recorded"


def observed(**changes: object) -> Observation:
    path = sorted(RECORDED.glob("*/launches/observe/observation.json"))[0]
    found = read_record(path, Observation)
    status = changes.pop("status")
    ranks = [rank.model_copy(update={"status": status}) for rank in found.ranks]
    return found.model_copy(update={"ranks": ranks, **changes})


@pytest.mark.parametrize(
    ("status", "exit_code", "failed"),
    [
        ("stopped", 0, False),
        ("stopped", -11, False),  # died in its own profiler's teardown, after it was asked to stop
        ("completed", -11, True),
        ("completed", 1, True),
        ("killed", -9, True),
        ("exception", 0, True),
    ],
)
def test_only_what_a_job_does_by_itself_is_its_failure(status: str, exit_code: int, failed: bool) -> None:
    assert job_failed(observed(status=status, exit_code=exit_code)) is failed


def test_a_rank_that_was_not_stopped_still_counts() -> None:
    assert job_failed(observed(status="stopped", exit_code=-11, expected_ranks=2))
