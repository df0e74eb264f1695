"""Lays out a launch folder and the environment of the job.

The job gets one thing of ours: the inject folder, first on PYTHONPATH. All settings lie in that folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.data import probe_dir
from autotune.errors import FilesError
from autotune.observe.command import read_command
from autotune.store import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from autotune.observe.spec import LaunchSpec

INJECT, RAW, HELLO, SANDBOX = "inject", "raw", "hello", "sandbox"
TRAIN_LOG = "train.log"
PROBE_PACKAGE = "_autotune_probe"

# Experiment trackers: a shortened run must not appear on a dashboard. What the user set stays.
_OFFLINE = {
    "WANDB_MODE": "offline",
    "NEPTUNE_MODE": "offline",
    "SWANLAB_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_START_ONLINE": "0",
}

_TEMPORARY = ("TMPDIR", "TEMP", "TMP")
# What programs share there by a fixed name, and what was made by `tempfile`.
_SHARED = re.compile(
    r"^\.|^(ray|torch|triton|cuda|nvidia|deepspeed|systemd|snap|pymp-)|cache|^tmp[a-z0-9_]{8}$"
)


def lay_out(spec: LaunchSpec) -> Path:
    """Make the launch folder with the probe and its settings; returns the inject folder.

    Raises FilesError.
    """
    folder = spec.folder
    inject = folder / INJECT
    try:
        for name in (INJECT, RAW, HELLO, SANDBOX):
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir(parents=True)
        for name in (TRAIN_LOG, "observation.json"):
            (folder / name).unlink(missing_ok=True)
        package = inject / PROBE_PACKAGE
        package.mkdir()
        for source in sorted(probe_dir().glob("*.py")):
            shutil.copyfile(source, (inject if source.name == "sitecustomize.py" else package) / source.name)
    except OSError as fault:
        hint = "choose another folder with --runs-dir"
        raise FilesError(
            fault.strerror or str(fault), where=fault.filename or str(folder), hint=hint
        ) from fault
    write_text(inject / "settings.json", json.dumps(settings(spec), indent=1) + "\n")
    return inject


def settings(spec: LaunchSpec) -> dict[str, object]:
    """What the probe is told."""
    folder = spec.folder
    return {
        "folder": str(folder),
        "sandbox": str(folder / SANDBOX),
        "mode": spec.mode,
        "steps": spec.steps,
        "warmup_steps": spec.warmup_steps,
        "profile_steps": spec.profile_steps,
        "profile_ranks": list(spec.profile_ranks),
        "budget_s": spec.budget_s,
        "least_s": spec.least_s,
        "stop": spec.stop,
        "stop_grace_s": spec.stop_grace_s,
        "seed": spec.seed,
        "seed_shift": spec.seed_shift,
        "deterministic": spec.deterministic,
        "isolation": spec.isolation,
        "example_steps": spec.example_steps,
        "full_precision": spec.full_precision,
        "module_inputs": str(spec.module_inputs or ""),
        "keep_module_inputs": spec.keep_module_inputs,
        "longest_first": spec.longest_first,
        "longest_times": spec.longest_times,
        "memory_probe": list(spec.memory_probe),
        "protect": spec.guarded,
        "protected_roots": protected_roots(spec),
        "kept_in_temporary": _in_temporary(spec),
        "allow_write": [str(p) for p in spec.allow_write],
        "fingerprint_files": [str(p) for p in spec.fingerprint_files],
        "user_roots": [str(p) for p in spec.user_roots],
        "started_at_s": time.time(),
        "parent_pid": os.getpid(),
    }


def protected_roots(spec: LaunchSpec) -> list[str]:
    """The folders of the user's: the working folder, what its links lead to, the script's, the project, and
    those named."""
    found = [spec.cwd, *spec.user_roots, *spec.protected_roots, *_scripts_folder(spec)]
    try:
        found += [entry.resolve() for entry in spec.cwd.iterdir() if entry.is_symlink()]
    except OSError:
        pass
    return list(dict.fromkeys(str(path) for path in found))


def _scripts_folder(spec: LaunchSpec) -> list[Path]:
    """Where the script lies, which need not be the working folder."""
    script = read_command(spec.command, spec.cwd).script if spec.command else None
    return [Path(script).resolve().parent] if script else []


def _in_temporary(spec: LaunchSpec) -> list[str]:
    """A job may make temporary files; those that are there before it starts are somebody's."""
    env = {**os.environ, **spec.env}
    named = [value for name in _TEMPORARY if (value := env.get(name)) and value.startswith("/")]
    found: list[str] = []
    for folder in dict.fromkeys(os.path.realpath(name) for name in [*named, "/tmp", "/var/tmp"]):
        try:
            with os.scandir(folder) as entries:
                found += [entry.path for entry in entries if not _SHARED.search(entry.name)]
        except OSError:
            continue
    return found


def job_environment(
    spec: LaunchSpec, inject: Path, base: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """The job's variables, and notes on what is unlike the user's own start."""
    env = dict(base)
    for name, value in spec.env.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    parts = [str(inject), *(str(p) for p in spec.python_path)]
    parts += [part for part in env.get("PYTHONPATH", "").split(os.pathsep) if part]
    env["PYTHONPATH"] = os.pathsep.join(parts)
    notes: list[str] = []
    if spec.mode == "parity" and spec.seed is not None:
        env.setdefault("PYTHONHASHSEED", str(spec.seed % 2**32))  # the order of sets decides orders of data
    if spec.guarded:
        for name, value in _OFFLINE.items():
            env.setdefault(name, value)
        if not spec.env.get("MLFLOW_TRACKING_URI"):
            env["MLFLOW_TRACKING_URI"] = (spec.folder / SANDBOX / "mlruns").as_uri()
        env["WANDB_DIR"] = str(spec.folder / SANDBOX)
        notes.append("experiment trackers were kept offline for this run")
    return env, notes
