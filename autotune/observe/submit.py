"""Launches of the job through a scheduler: each is submitted with submitit, and waited for.

What is submitted is a whole launch, so the node does exactly what happens here without a scheduler: the
command, the probe, the deadlines. The launch folder lies on a file system that both sides see.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autotune import errors
from autotune.errors import FilesError, InputError, InterruptedRunError, JobFailedError
from autotune.observe.progress import Watcher
from autotune.observe.spec import LaunchSpec
from autotune.records.observation import Observation
from autotune.store import read_record

if TYPE_CHECKING:
    from autotune.observe.progress import ProgressCallback

Cluster = Literal["slurm", "local"]

_POLL_S = 1.0
_SUBMIT_FOLDER = "submit"
_FAULT_TAIL = 400
_SHARED_FS_S = 60.0  # until a file written on the node is seen here


@dataclass(frozen=True)
class Fault:
    """A fault of a launch on its way back from the node."""

    kind: str
    what: str
    where: str | None
    hint: str | None

    def raise_again(self) -> None:
        """As the error it was."""
        kind = getattr(errors, self.kind, JobFailedError)
        raise kind(self.what, where=self.where, hint=self.hint)


@dataclass(frozen=True)
class Submitter:
    """A launch function that submits; `parameters` are submitit's, e.g. slurm_partition or timeout_min."""

    cluster: Cluster = "slurm"
    parameters: Mapping[str, str | int] = field(default_factory=dict)

    def __call__(self, spec: LaunchSpec, progress: ProgressCallback | None = None) -> Observation:
        """The observation of the launch. Raises what the launch raises, and JobFailedError when the scheduler
        refuses it or loses it.
        """
        executor = self._executor(spec.folder / _SUBMIT_FOLDER)
        try:
            job = executor.submit(launch_on_node, spec)
        except Exception as fault:
            what = f"the scheduler refused the job: {_tail(fault)}"
            raise JobFailedError(what, where=self.cluster) from fault
        try:
            self._wait(job, spec, progress)
        except KeyboardInterrupt:
            job.cancel()
            raise InterruptedRunError(
                "interrupted", where=str(spec.folder), hint="the submitted job was cancelled"
            ) from None
        try:
            returned: Fault | None = job.result()
        except Exception as lost:
            raise JobFailedError(
                f"the submitted job was lost: {_tail(lost)}",
                where=str(spec.folder / _SUBMIT_FOLDER),
                hint="its output lies there",
            ) from lost
        if returned is not None:
            returned.raise_again()
        return read_record(_seen(spec.folder / "observation.json"), Observation)

    def _executor(self, folder: Path) -> Any:
        submitit = _submitit()
        given: dict[str, str | int] = {"name": "autotune", "tasks_per_node": 1, "nodes": 1, **self.parameters}
        try:
            executor = submitit.AutoExecutor(folder=folder, cluster=self.cluster)
            executor.update_parameters(**given)
        except Exception as fault:
            raise InputError(f"submitit: {_tail(fault)}", where=f"--launcher {self.cluster}") from fault
        return executor

    def _wait(self, job: Any, spec: LaunchSpec, progress: ProgressCallback | None) -> None:
        watcher = Watcher(spec.folder, spec.steps)
        started = time.monotonic()
        while not job.done():
            if progress is not None and spec.folder.is_dir():
                progress(watcher.state(time.monotonic() - started))
            time.sleep(_POLL_S)


def launch_on_node(spec: LaunchSpec) -> Fault | None:
    """Runs on the node. The observation goes through the file, a fault through the return value."""
    from autotune.observe.launch import launch

    if os.environ.get("SLURM_PROCID", "0") != "0":
        return None  # the first task starts the command; the others only hold their nodes for it
    try:
        launch(spec)
    except errors.AutotuneError as fault:
        where = str(fault.where) if fault.where is not None else None
        return Fault(type(fault).__name__, fault.what, where, fault.hint)
    return None


def _submitit() -> Any:
    try:
        import submitit
    except ImportError as fault:
        raise InputError(
            "--launcher slurm needs the package submitit", hint="pip install 'autotune[slurm]'"
        ) from fault
    return submitit


def _seen(path: Path) -> Path:
    """The file, once a shared file system shows it here. Raises FilesError."""
    until = time.monotonic() + _SHARED_FS_S
    while not path.is_file():
        if time.monotonic() > until:
            raise FilesError(
                "the observation of the submitted launch cannot be seen here",
                where=str(path),
                hint="--runs-dir must lie on a file system that the nodes share with this machine",
            )
        time.sleep(_POLL_S)
    return path


def _tail(fault: Exception) -> str:
    return str(fault).strip()[-_FAULT_TAIL:]
