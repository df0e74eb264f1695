"""Checks of this installation, this machine and a job's interpreter, without starting the job."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.records.doctor import Check, DoctorReport
from autotune.version import __version__

_ASK_S = 120
_FREE_GIB = 2.0
# Runs inside the job's interpreter: standard library only, nothing heavy imported.
_QUESTION = """
import importlib.metadata as m, json, sys
names = ["torch", "transformers", "triton", "accelerate", "trl", "deepspeed", "flash-linear-attention",
         "fla-core", "causal-conv1d", "flash-attn", "liger-kernel", "kernels", "tilelang", "mamba-ssm"]
found = {}
for name in names:
    try: found[name] = m.version(name)
    except Exception: pass
print(json.dumps({"python": sys.version.split()[0], "packages": found, "executable": sys.executable,
                  "marker": getattr(sys, "_autotune_doctor", False)}))
"""
_MARK = "import sys\nsys._autotune_doctor = True\n"


def examine(command: tuple[str, ...], runs_dir: Path, cwd: Path) -> DoctorReport:
    """All checks; those of the interpreter use the command's own, or the `python` on the path."""
    checks = [_own(), _runs_dir(runs_dir), _gpu()]
    checks += _command(command, cwd)
    return DoctorReport(checks=checks, command=list(command))


def _own() -> Check:
    from autotune.data import data_dir
    from autotune.facts.catalogue import catalogue
    from autotune.rules.load import load_rules

    try:
        rules = load_rules([data_dir("rules")], catalogue=catalogue()).rules
        data_dir("templates")
    except AutotuneError as fault:
        return Check(name="autotune", state="problem", detail=str(fault), do="reinstall autotune-training")
    detail = f"{__version__} on Python {platform.python_version()}, {len(rules)} rules"
    return Check(name="autotune", state="ok", detail=detail)


def _runs_dir(runs_dir: Path) -> Check:
    place = runs_dir if runs_dir.exists() else runs_dir.absolute().parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
        free = shutil.disk_usage(place).free / 1024**3
    except OSError as fault:
        return Check(
            name="runs folder",
            state="problem",
            detail=f"{place}: {fault.strerror or fault}",
            do="choose a folder that can be written with --runs-dir",
        )
    if free < _FREE_GIB:
        return Check(
            name="runs folder",
            state="warning",
            detail=f"{place}: {free:.1f} GiB free",
            do="traces and trials need a few GiB; free some space or use --runs-dir",
        )
    return Check(name="runs folder", state="ok", detail=f"{place}, {free:.0f} GiB free")


def _gpu() -> Check:
    try:
        import pynvml

        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        names = [pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count)]
        driver = pynvml.nvmlSystemGetDriverVersion()
        pynvml.nvmlShutdown()
    except Exception:  # NVML raises its own types, and none of them stands in the way
        return Check(
            name="GPU",
            state="unknown",
            detail="no NVIDIA GPU answers through NVML; jobs on the CPU can be observed",
        )
    return Check(name="GPU", state="ok", detail=f"{count} x {', '.join(sorted(set(names)))}, driver {driver}")


def _command(command: tuple[str, ...], cwd: Path) -> list[Check]:
    if not command:
        python = shutil.which("python3") or shutil.which("python")
        if python is None:
            return [Check(name="job's Python", state="unknown", detail="no python on the path")]
        return _interpreter(python)
    from autotune.observe.attach import attachable
    from autotune.observe.command import read_command
    from autotune.observe.command_check import check_command

    try:
        job = read_command(command, cwd)
        check_command(job)
        attachable(job)
    except AutotuneError as fault:
        return [Check(name="command", state="problem", detail=fault.what, do=fault.hint or "")]
    what = job.script or job.module or job.shell_script or command[0]
    checks = [Check(name="command", state="ok", detail=f"{job.launcher} starts {what}")]
    checks += [Check(name="command", state="warning", detail=obstacle) for obstacle in job.obstacles]
    if job.interpreter is None:
        checks.append(
            Check(
                name="job's Python",
                state="unknown",
                detail="the command does not tell which Python will train; it is seen once the job runs",
            )
        )
        return checks
    return checks + _interpreter(job.interpreter)


def _interpreter(python: str) -> list[Check]:
    with tempfile.TemporaryDirectory(prefix="autotune-doctor-") as folder:
        (Path(folder) / "sitecustomize.py").write_text(_MARK, encoding="utf-8")
        import os

        env = dict(os.environ)
        env["PYTHONPATH"] = os.pathsep.join(p for p in (folder, env.get("PYTHONPATH", "")) if p)
        try:
            done = subprocess.run(
                [python, "-c", _QUESTION],
                capture_output=True,
                text=True,
                timeout=_ASK_S,
                env=env,
                check=False,
            )
            answer = json.loads(done.stdout.strip().splitlines()[-1])
        except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as fault:
            return [
                Check(
                    name="job's Python",
                    state="problem",
                    detail=f"{python} does not answer: {fault}",
                    do="check that this interpreter starts by itself",
                )
            ]
    packages = answer["packages"]
    checks = [Check(name="job's Python", state="ok", detail=f"{answer['python']} at {answer['executable']}")]
    if not answer["marker"]:
        checks.append(
            Check(
                name="observer",
                state="problem",
                detail="this interpreter does not run an injected sitecustomize",
                do="take -I, -E or -S off the command, or start Python directly",
            )
        )
    if tuple(int(p) for p in answer["python"].split(".")[:2]) < (3, 11):
        checks.append(
            Check(
                name="call sites",
                state="warning",
                detail="Python before 3.11 gives no columns: most edits become advice",
                do="use Python 3.11 or newer for the job",
            )
        )
    if "torch" not in packages:
        checks.append(
            Check(
                name="torch",
                state="problem",
                detail="not installed there",
                do="name the job's own interpreter",
            )
        )
        return checks
    listed = ", ".join(f"{name} {version}" for name, version in packages.items())
    checks.append(Check(name="packages", state="ok", detail=listed))
    return checks + _kernel_packages(packages)


def _kernel_packages(packages: dict[str, str]) -> list[Check]:
    """Which kernel packages would fit there, with the exact command; nothing is installed."""
    from autotune.facts.recipes import Environment, environment_plan, tools_here

    capability = _compute_capability()
    if capability is None:
        return [Check(name="kernel packages", state="unknown", detail="no NVIDIA GPU answers: not looked at")]
    checks = []
    for advice in environment_plan(Environment(packages, capability, tools_here())):
        name = f"kernels: {advice.package}"
        if advice.state == "installed":
            continue
        if advice.state != "fits":
            detail = advice.reason + (f"; instead: {advice.instead}" if advice.instead else "")
            checks.append(Check(name=name, state="unknown", detail=f"{advice.state}: {detail}"))
            continue
        notes = [
            note for note in (advice.reason, advice.build, advice.instead and f"or {advice.instead}") if note
        ]
        detail = "; ".join(["fits", *notes])
        checks.append(Check(name=name, state="ok", detail=detail, do=advice.command))
    return checks


def _compute_capability() -> float | None:
    """Of the first NVIDIA GPU; None when none answers."""
    try:
        import pynvml

        pynvml.nvmlInit()
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(pynvml.nvmlDeviceGetHandleByIndex(0))
    except Exception:
        return None
    return float(f"{major}.{minor}")
