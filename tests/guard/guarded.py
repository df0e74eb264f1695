"""Runs a piece of Python under the write guard, as a launch would; compares the project before and after."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.observe.layout import job_environment, lay_out
from autotune.observe.spec import LaunchSpec


def tree(folder: Path) -> dict[str, str]:
    """Every file, link and folder below `folder` with a digest of its content, mode and time."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest() + f" {info.st_mtime_ns}"
        else:
            content = "folder"
        found[str(path.relative_to(folder))] = f"{content} {info.st_mode:o}"
    return found


@dataclass
class Guarded:
    """A project folder and a launch folder beside it."""

    project: Path
    launch: Path
    allow_write: tuple[Path, ...] = ()
    protected_roots: tuple[Path, ...] = ()
    env: dict[str, str | None] = field(default_factory=dict)
    interpreter: str = sys.executable

    def spec(self, command: tuple[str, ...]) -> LaunchSpec:
        return LaunchSpec(
            command=command, cwd=self.project, folder=self.launch, mode="timing", env=self.env,
            allow_write=self.allow_write, protected_roots=self.protected_roots,
        )  # fmt: skip

    def prepare(self) -> dict[str, str]:
        spec = self.spec(("python",))
        return job_environment(spec, lay_out(spec), os.environ)[0]

    def python(self, code: str, *, fresh: bool = True, check: bool = True) -> str:
        """Run `code`; returns what it printed. `fresh`: with an empty sandbox."""
        if fresh or not (self.launch / "inject").exists():
            self.environment = self.prepare()
        done = subprocess.run(
            [self.interpreter, "-c", textwrap.dedent(code)], cwd=self.project, env=self.environment,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert not list((self.launch / "hello").glob("*.traceback.txt")), "the boot failed"
        faults = [f.read_text() for f in (self.launch / "raw").rglob("faults.log")]
        assert not faults, faults[0]
        if check:
            assert done.returncode == 0, done.stderr
        return done.stdout + ("" if check else done.stderr)

    def records(self) -> list[dict[str, Any]]:
        """The guard's events of all processes."""
        found = []
        for file in sorted((self.launch / "raw").rglob("events.jsonl")):
            found += [json.loads(line) for line in file.read_text().splitlines()]
        return [event for event in found if event["kind"] == "guard"]
