"""A launch in which the longest examples come first."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autotune.observe.launch import launch
from autotune.observe.spec import LaunchSpec

JOB = Path(__file__).parent.parent / "verify" / "jobs" / "half.py"


@pytest.mark.job
def test_the_longest_examples_come_first(tmp_path: Path) -> None:
    seen = launch(
        LaunchSpec(
            command=(sys.executable, str(JOB), "--half", "none", "--steps", "12"),
            cwd=JOB.parent,
            folder=tmp_path / "launch",
            mode="timing",
            steps=3,
            warmup_steps=1,
            longest_first=True,
            echo="none",
        )
    )
    (rank,) = seen.ranks
    assert rank.hook_faults == []
    assert rank.counters["longest_first.examples"] == 320
    longest = int(rank.counters["longest_first.tokens"])
    assert longest >= 38
    shapes = [tuple(step.shapes[0]) for step in rank.steps[:3]]
    assert shapes == [(8, longest)] * 3
    assert rank.steps[0].real_tokens is not None and rank.steps[0].real_tokens > 8 * (longest - 2)
