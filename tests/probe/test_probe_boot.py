"""Getting into the processes of a job, and into nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import SCRIPTS, environment, faults, run, told

from autotune.observe.layout import job_environment, lay_out
from autotune.observe.read import hello_files
from autotune.observe.spec import LaunchSpec

Record = Callable[[str, object], None]
SHOW = "import os, sys, json; print(json.dumps([dict(os.environ), sys.path, 'torch' in sys.modules]))"


def _injected(tmp_path: Path, base: dict[str, str]) -> tuple[LaunchSpec, dict[str, str]]:
    spec = LaunchSpec(command=("python",), cwd=tmp_path, folder=tmp_path / "launch", protect=False)
    spec.folder.mkdir()
    return spec, job_environment(spec, lay_out(spec), base)[0]


def test_only_the_inject_folder_is_added_to_the_environment(tmp_path: Path) -> None:
    base = {**environment(), "PYTHONPATH": "/somewhere/else"}
    spec, env = _injected(tmp_path, base)
    shown = [
        json.loads(
            subprocess.run([sys.executable, "-c", SHOW], env=e, capture_output=True, check=True).stdout
        )
        for e in (base, env)
    ]
    (before, path_before, _), (after, path_after, torch_loaded) = shown
    inject = str(spec.folder / "inject")
    assert after.pop("PYTHONPATH") == inject + ":/somewhere/else"
    assert before.pop("PYTHONPATH") == "/somewhere/else"
    assert after == before
    assert [entry for entry in path_after if entry != inject] == path_before
    assert not torch_loaded


def test_existing_sitecustomize_runs(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import builtins\nbuiltins.from_the_user = 42\n")
    spec, env = _injected(tmp_path, {**environment(), "PYTHONPATH": str(other)})
    code = "import sitecustomize; print(from_the_user, sitecustomize.__file__)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["42", str(other / "sitecustomize.py")]
    (hello,) = hello_files(spec.folder)
    assert hello["chained_sitecustomize"] is True


def test_a_sitecustomize_that_fails_fails_as_before(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("raise ValueError('from the user')\n")
    spec, env = _injected(tmp_path, {**environment(), "PYTHONPATH": str(other)})
    plain = {**environment(), "PYTHONPATH": str(other)}
    outputs = []
    for variables in (plain, env):
        done = subprocess.run(
            [sys.executable, "-c", "print(1)"], env=variables, capture_output=True, text=True
        )
        outputs.append((done.returncode, done.stdout, done.stderr.strip().splitlines()[-1:]))
    assert outputs[0] == outputs[1]
    assert len(hello_files(spec.folder)) == 1


def test_a_fault_of_ours_never_reaches_the_job(tmp_path: Path) -> None:
    spec, env = _injected(tmp_path, environment())
    (spec.folder / "inject" / "settings.json").write_text("{ not json")
    done = subprocess.run([sys.executable, "-c", "print(7)"], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")
    (report,) = spec.folder.glob("hello/*.traceback.txt")
    assert "JSONDecodeError" in report.read_text()


def test_isolated_interpreter_leaves_no_hello(tmp_path: Path) -> None:
    spec, env = _injected(tmp_path, environment())
    subprocess.run([sys.executable, "-I", "-c", "pass"], env=env, check=True)
    assert hello_files(spec.folder) == []


def test_hello_tells_the_shape_of_the_command_and_no_values(tmp_path: Path) -> None:
    spec, env = _injected(tmp_path, environment())
    script = tmp_path / "job.py"
    script.write_text("import sys\n")
    words = ["--token", "hf_verysecret", "--name=private", "positional"]
    subprocess.run([sys.executable, "-u", str(script), *words], env=env, check=True)
    (path,) = (spec.folder / "hello").glob("*.json")
    text = path.read_text()
    assert "secret" not in text and "private" not in text and str(tmp_path) not in text
    hello = json.loads(text)
    assert hello["kind"] == "script" and hello["name"] == "job.py" and hello["flags"] == ["-u"]
    assert hello["options"] == ["--name", "--token"] and hello["arguments"] == 4


def test_launchers_and_trackers_are_told_apart(tmp_path: Path) -> None:
    spec, env = _injected(tmp_path, environment())
    tracker = "import multiprocessing.resource_tracker as r; from sys import argv"
    subprocess.run([sys.executable, "-c", tracker], env=env, check=True)
    subprocess.run([sys.executable, "-m", "pip", "--version"], env=env, check=True, capture_output=True)
    kinds = [(hello["kind"], hello["armed"]) for hello in hello_files(spec.folder)]
    assert kinds == [("resource tracker", False), ("launcher", False)]


@pytest.mark.job
def test_spawned_loader_workers_are_no_ranks(tmp_path: Path, record_property: Record) -> None:
    job = run(tmp_path, "plain_loop.py", "--workers", "1", "--start-method", "spawn", mode="timing", steps=3)
    assert job.exit_code == 0 and faults(job) == []
    assert len(job.observation.ranks) == 1
    assert {"script", "spawned process"} <= {hello["kind"] for hello in job.hello}
    assert not list(job.folder.glob("raw/process-*"))
    told(record_property, "python", "spawned loader workers", "1 rank, stopped, the workers are no ranks")


@pytest.mark.job
def test_ranks_started_by_multiprocessing_spawn(tmp_path: Path, record_property: Record) -> None:
    words = ("--style", "ddp", "--spawn", "--steps", "60")
    job = run(tmp_path, "distributed_loop.py", *words, mode="timing", steps=3, env={"PORT": "29533"})
    assert job.exit_code == 0, job.errors[-2000:]
    assert [(rank.rank, rank.world_size, rank.status) for rank in job.observation.ranks] == [
        (0, 2, "stopped"),
        (1, 2, "stopped"),
    ]
    assert len({len(rank.steps) for rank in job.observation.ranks}) == 1
    told(
        record_property,
        "torch.multiprocessing.spawn",
        "DDP",
        "2 ranks, stopped at the same step, exit code 0",
    )


@pytest.mark.job
def test_bash_around_the_job(tmp_path: Path, record_property: Record) -> None:
    line = f"cd {SCRIPTS} && exec {sys.executable} -m training_package.train"
    job = run(tmp_path, "-c", line, prefix=("bash",), mode="timing", steps=3)
    assert job.exit_code == 0 and len(job.rank.steps) >= 6
    told(record_property, "bash -c around python -m", "plain loop", "1 rank, stopped, exit code 0")
