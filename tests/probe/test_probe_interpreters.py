"""Interpreters and versions of torch other than the ones the tests run in.

TEST_PYTHONS names them, separated by colons: each needs torch. Without it there is nothing to test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import environment, faults, run, run_alone

pytestmark = [pytest.mark.job, pytest.mark.full]
PYTHONS = [path for path in os.environ.get("TEST_PYTHONS", "").split(":") if path]
ASK = "import json, sys, torch; print(json.dumps([sys.version.split()[0], torch.__version__]))"


@pytest.mark.parametrize("python", PYTHONS or [pytest.param("", marks=pytest.mark.skip("TEST_PYTHONS"))])
def test_another_interpreter(
    tmp_path: Path, python: str, record_property: Callable[[str, object], None]
) -> None:
    asked = subprocess.run([python, "-c", ASK], env=environment(), capture_output=True, text=True, check=True)
    version, torch = json.loads(asked.stdout)
    record_property("start", f"Python {version}, torch {torch}")
    record_property("style", "plain loop")
    alone = run_alone(tmp_path, "plain_loop.py", prefix=(python,))
    job = run(tmp_path / "seen", "plain_loop.py", prefix=(python,), mode="profile", stop="never")
    assert job.exit_code == 0 and faults(job) == [], job.errors[-2000:]
    assert job.losses == alone and len(job.rank.steps) == 36
    assert job.rank.environment.python == version and job.rank.environment.torch == torch
    assert job.rank.trace_file is not None and job.rank.model is not None
    sites = {site.kind: site for site in job.observation.sites}
    assert {"loader", "optimizer_create", "backward", "model_call"} <= set(sites)
    # interpreters before 3.11 keep no columns: the line alone is known
    assert (sites["loader"].span is not None) == (tuple(map(int, version.split(".")[:2])) >= (3, 11))
    compiled = run(
        tmp_path / "compiled", "compiled_loop.py", "--how", "wrapper", prefix=(python,), mode="profile"
    )
    assert compiled.exit_code == 0 and faults(compiled) == [], compiled.errors[-2000:]
    record_property("result", "36 steps found, losses equal bit for bit, fullgraph compiles")


def test_this_interpreter_is_another_one_than_autotunes(tmp_path: Path) -> None:
    """The job's Python need not have autotune: the probe is copied, never imported from us."""
    code = "import sys; sys.modules['autotune'] = None; import runpy; runpy.run_path(sys.argv[1])"
    script = tmp_path / "job.py"
    script.write_text(
        "import torch\nm = torch.nn.Linear(2, 2)\no = torch.optim.SGD(m.parameters(), lr=0.1)\n"
        "for _ in range(6):\n    m(torch.ones(1, 2)).sum().backward(); o.step(); o.zero_grad()\n"
    )
    job = run(tmp_path, "-c", code, str(script), prefix=(sys.executable,), mode="timing", stop="never")
    assert job.exit_code == 0 and len(job.rank.steps) == 6 and faults(job) == []
