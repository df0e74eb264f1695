"""Steps that are short against a start are timed more often than was asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from probe_parts import part

from autotune.observe.launch import launch
from autotune.observe.spec import LaunchSpec
from autotune.verify.estimate import MOST_LONGER

JOB = """
import time
import torch

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(400):
    model(torch.ones(2, 4)).sum().backward()
    time.sleep(0.02)
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_estimate_counts_as_the_probe_does() -> None:
    assert part("windows").MOST_LONGER == MOST_LONGER


@pytest.mark.job
@pytest.mark.parametrize(
    ("least_s", "budget_s", "fewest", "most"),
    [(None, None, 6, 6), (0.6, None, 15, 40), (60.0, None, 96, 96), (0.1, 0.02, 5, 6)],
)
def test_a_launch_times_short_steps_for_as_long(
    tmp_path: Path, least_s: float | None, budget_s: float | None, fewest: int, most: int
) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    seen = launch(
        LaunchSpec(
            command=(sys.executable, str(script)), cwd=tmp_path, folder=tmp_path / "launch", mode="timing",
            steps=6, warmup_steps=3, least_s=least_s, budget_s=budget_s, echo="none",
        )
    )  # fmt: skip
    (rank,) = seen.ranks
    assert rank.status == "stopped" and rank.hook_faults == []
    timed = [step for step in rank.steps if not {"first", "warmup"} & set(step.tags)]
    assert fewest <= len(timed) <= most
