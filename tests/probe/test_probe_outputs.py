"""What a job writes under the observer is what it writes without it, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jobs import environment, faults, run

# the model is saved whole, and copied, while the hooks on it are there: no loader, so they stay
JOB = """
import copy, pickle, torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.1))
    def forward(self, x):
        return self.body(x)
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(12):
    model(torch.randn(2, 8)).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step in (1, 4, 11):
        torch.save({"model": model, "optimizer": optimizer, "step": step}, f"whole-{step}.pt")
        torch.save(copy.deepcopy(model), f"copy-{step}.pt")
torch.save(model.state_dict(), "weights.pt")
print("hooks", len(pickle.loads(pickle.dumps(model))._forward_pre_hooks))
"""


@pytest.mark.job
@pytest.mark.parametrize("mode", ["profile", pytest.param("watch", marks=pytest.mark.full)])
def test_saved_models_hold_nothing_of_the_observer(tmp_path: Path, mode: str) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    alone = tmp_path / "alone"
    alone.mkdir()
    subprocess.run([sys.executable, script], env=environment(), cwd=alone, check=True)
    job = run(tmp_path, str(script), mode=mode, stop="never", steps=4, warmup_steps=3)
    assert job.exit_code == 0 and faults(job) == [] and job.output == "hooks 0\n", job.errors[-2000:]
    names = sorted(path.name for path in alone.iterdir())
    assert len(names) == 7
    for name in names:
        assert (tmp_path / "work" / name).read_bytes() == (alone / name).read_bytes(), name
