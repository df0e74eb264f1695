"""Starts a real training job with the observer in it, as the launch side lays it out, and reads what it
wrote..
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.observe.layout import job_environment, lay_out
from autotune.observe.read import hello_files, read_observation
from autotune.observe.spec import LaunchSpec
from autotune.records.observation import Observation, RankObservation

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@dataclass(frozen=True)
class Job:
    """What one job did."""

    folder: Path
    exit_code: int
    output: str
    errors: str
    observation: Observation
    hello: list[dict[str, Any]]

    @property
    def rank(self) -> RankObservation:
        assert len(self.observation.ranks) == 1, [rank.rank for rank in self.observation.ranks]
        return self.observation.ranks[0]

    @property
    def losses(self) -> list[str]:
        return losses(self.output)

    def site(self, kind: str) -> Any:
        found = [site for site in self.observation.sites if site.kind == kind]
        assert len(found) == 1, [(site.kind, site.line) for site in self.observation.sites]
        return found[0]


def told(record: Callable[[str, object], None], start: str, style: str, result: str) -> None:
    """A row for the table of docs/compatibility.md, written by bench/compatibility.py."""
    for name, value in (("start", start), ("style", style), ("result", result)):
        record(name, value)


def losses(output: str) -> list[str]:
    return [line.split()[1] for line in output.splitlines() if line.startswith("loss ")]


def environment() -> dict[str, str]:
    """A quiet one: two cores are shared, and nothing of the test run reaches the job."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV_", "PYTHONPATH"))}
    return {**kept, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


def run(
    folder: Path,
    script: str,
    *words: str,
    prefix: tuple[str, ...] = (sys.executable,),
    env: dict[str, str] | None = None,
    timeout_s: float = 240.0,
    more: dict[str, Any] | None = None,
    **settings: Any,
) -> Job:
    """Run `prefix script words` under the observer.

    `settings` go into the LaunchSpec; `more` changes what the probe reads besides.
    """
    target = script if script.startswith("-") else str(SCRIPTS / script)
    command = (*prefix, *target.split(" "), *words)
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    settings.setdefault("protect", False)
    settings.setdefault("steps", 5)
    settings.setdefault("warmup_steps", 4)
    spec = LaunchSpec(
        command=command, cwd=work, folder=folder / "launch", user_roots=(SCRIPTS, work), **settings
    )
    spec.folder.mkdir(parents=True, exist_ok=True)
    inject = lay_out(spec)
    if more:
        path = inject / "settings.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    base = {**environment(), **(env or {})}
    variables, _ = job_environment(spec, inject, base)
    started_s = time.monotonic()
    done = subprocess.run(
        command, cwd=work, env=variables, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    observation = read_observation(
        spec.folder,
        mode=spec.mode,
        command=command,
        cwd=work,
        exit_code=done.returncode,
        wall_s=time.monotonic() - started_s,
        expected_ranks=1,
        started_s=started_s,
    )
    return Job(spec.folder, done.returncode, done.stdout, done.stderr, observation, hello_files(spec.folder))


def run_alone(
    folder: Path,
    script: str,
    *words: str,
    prefix: tuple[str, ...] = (sys.executable,),
    env: dict[str, str] | None = None,
) -> list[str]:
    """Losses of the same job without the observer."""
    target = script if script.startswith("-") else str(SCRIPTS / script)
    work = folder / "alone"
    work.mkdir(parents=True, exist_ok=True)
    for _ in range(2):
        done = subprocess.run(
            (*prefix, *target.split(" "), *words),
            cwd=work,
            env={**environment(), **(env or {})},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        # torch may abort a gloo rank while the interpreter ends, after its last step
        if "terminate called without an active exception" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr[:2000] + done.stderr[-2000:]
    return losses(done.stdout)


def faults(job: Job) -> list[str]:
    """Errors inside our own hooks, of every process; a job is only well observed when there are none."""
    logs = [path.read_text() for path in job.folder.glob("raw/*/faults.log")]
    logs += [path.read_text() for path in job.folder.glob("hello/*.traceback.txt")]
    return logs
