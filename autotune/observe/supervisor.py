"""A small process beside the job that ends it when autotune itself is killed.

It waits on a pipe that only autotune holds. The pipe closes without a word when autotune was killed: then
every process of the job gets SIGTERM and, after the grace period, SIGKILL. Run by file path, so that it needs
nothing but the standard library and the module beside it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

_LEFT_WELL = b"."
_HERE = Path(__file__).resolve()


class Supervisor:
    """Started by autotune beside one job; `dismiss` it when nothing of the job is left to look after."""

    def __init__(self, group: int, inject: Path, grace_s: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_HERE), str(group), str(inject), str(grace_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,  # what is sent to our terminal's group does not reach it
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def dismiss(self) -> None:
        """The job has ended."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.write(_LEFT_WELL)
                self._process.stdin.close()
            except OSError:
                pass
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()


def _processes() -> ModuleType:
    """The module beside this one, without the package around it."""
    name = "processes"
    spec = spec_from_file_location(name, _HERE.with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    return module


def _watch(group: int, inject: Path, grace_s: float) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.read(0, 1) != _LEFT_WELL:
        _processes().end_job(group, inject, grace_s)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
