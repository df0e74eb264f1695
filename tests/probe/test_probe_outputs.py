"""What a job writes under the observer is what it writes without it, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jobs import environment, faults, run

# the model is saved whole, and copied, while the hooks on it are there: no loader, so they stay; what$
# TorchScript knows, and the locals the job holds, stay what they are
JOB = """
import copy, pickle, torch
torch.manual_seed(0)
class Marked:
    def __reduce_ex__(self, protocol):
        self.reduced = True
        return super().__reduce_ex__(protocol)
class Net(torch.nn.Module, Marked):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.1))
    def forward(self, x):
        return self.body(x)
@torch.jit.script
def rows(x):
    return torch.nn.functional.one_hot(x.long().clamp(0, 7), 8).float()
@torch.jit.script
def slope(x):
    g = torch.autograd.grad([(x * x).sum()], [x])[0]
    assert g is not None
    return g
def train(model, rate=1e-3, kept=[]):
    settings = locals()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for step in range(12):
        x = torch.randn(2, 8)
        kept.append(float(slope(x.requires_grad_()).sum()))
        (model(x.detach()).pow(2).sum() + 0 * rows(x[0]).sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step in (1, 4, 11):
            torch.save({"model": model, "optimizer": optimizer, "step": step}, f"whole-{step}.pt")
            torch.save(copy.deepcopy(model), f"copy-{step}.pt")
            torch.save({**settings, "itself": (loop := {}, loop.update(loop=loop))}, f"settings-{step}.pt")
model = Net()
train(model)
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
    assert len(names) == 10
    for name in names:
        assert (tmp_path / "work" / name).read_bytes() == (alone / name).read_bytes(), name
