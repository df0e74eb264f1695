"""An optimizer that is handed a closure, as Lightning does, is timed without the forward and backward."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import run

JOB = """
import time, torch
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)
for batch in loader:
    def closure():
        optimizer.zero_grad()
        time.sleep(0.03)
        loss = model(batch).pow(2).mean()
        loss.backward()
        return loss
    optimizer.step(closure)
"""


@pytest.mark.job
def test_the_closure_is_not_the_optimizers_time(tmp_path: Path) -> None:
    script = tmp_path / "closure.py"
    script.write_text(JOB)
    job = run(tmp_path, str(script), mode="timing", stop="never")
    timed = job.rank.steps[3:]
    assert len(timed) > 5
    assert all(step.duration_ms > 30 for step in timed)
    assert sorted(step.optimizer_ms or 0.0 for step in timed)[len(timed) // 2] < 15
