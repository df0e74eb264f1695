"""Nothing of the user's changes: a job that saves, rotates and resumes goes through a whole loop."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.optimize.test_loop import PACK

JOB = """
import os, pathlib, shutil, time, torch
torch.manual_seed(0)
here = pathlib.Path(__file__).parent
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = sorted((here / "ckpt").glob("step-*"))
model.load_state_dict(torch.load(kept[-1] / "model.pt"))
first, second = "FIRST" in os.environ, "SECOND" in os.environ
pause = 0.015 if first and second else 0.08 if first else 0.05
data = torch.utils.data.TensorDataset(torch.randn(4000, 8), torch.randn(4000, 1))
try:
    for i, (x, y) in enumerate(torch.utils.data.DataLoader(data, batch_size=4)):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        time.sleep(pause)
        optimizer.step()
        optimizer.zero_grad()
        with open(here / "metrics.jsonl", "a") as log:
            log.write("{}\\n")
        if i % 4 == 3:
            folder = here / "ckpt" / f"step-9{i:03d}"
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(model.state_dict(), folder / "model.pt")
            for old in sorted((here / "ckpt").glob("step-*"))[:-2]:
                shutil.rmtree(old)
finally:
    torch.save(model.state_dict(), here / "model.pt")
    (here / "done.txt").write_text("done")
"""


def _hashes(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        found[str(path.relative_to(folder))] = content
    return found


@pytest.mark.job
def test_the_tree_of_a_job_that_saves_stays_as_it_was(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("step-0001", "step-0002", "step-0003"):
        (project / "ckpt" / name).mkdir(parents=True)
        code = "import sys, torch; torch.save(torch.nn.Linear(8, 1).state_dict(), sys.argv[1])"
        subprocess.run([sys.executable, "-c", code, str(project / "ckpt" / name / "model.pt")], check=True)
    (project / "train.py").write_text(JOB)
    (project / "model.pt").write_bytes(b"the real model")
    (project / "metrics.jsonl").write_text("{}\n")
    for name, text in PACK.items():
        path = tmp_path / "pack" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    before = _hashes(project)
    command = [
        sys.executable, "-m", "autotune", "optimize", "--json", "--steps", "8",
        "--runs-dir", str(tmp_path / "runs"), "--rules", str(tmp_path / "pack"),
        "--select", "kernels/first", "--select", "batching/second",
        "--", sys.executable, "train.py",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["trials"] == 1
    assert _hashes(project) == before
