"""What counts as a failure of the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.observe.outcome import failure_hint, failure_sentence, job_failed, last_words
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


TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 16, in <module>',
    "    name = input()",
    "EOFError: EOF when reading a line",
    "",
    "name?",
]


def test_a_failure_is_told_by_its_exception_not_by_what_came_through_the_other_pipe() -> None:
    assert last_words(TRACEBACK) == "EOFError: EOF when reading a line"
    assert last_words(["one", " two ", ""]) == "two" and last_words([]) == ""
    ranks = [f"[rank1]: {line}" for line in TRACEBACK[:-2]]
    mixed = [
        ranks[0],
        "[rank0]: other",
        *ranks[1:],
        TRACEBACK[0],
        "  in main",
        "x.ChildFailedError: ",
        "=====",
    ]
    assert last_words(mixed) == "EOFError: EOF when reading a line"
    job = observed(status="completed", exit_code=1, log_tail=TRACEBACK, ranks=[])
    assert failure_sentence(job).endswith("its last line: EOFError: EOF when reading a line")
    assert "gets no input" in failure_hint(job)
    assert "train.log" in failure_hint(job.model_copy(update={"log_tail": ["killed"]}))
