"""Faults of a command that are known before it is started: a program or a script that does not exist."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import JobFailedError
from autotune.observe.programs import ASSIGNMENT, absolute, which

if TYPE_CHECKING:
    from autotune.records.command import JobCommand


def check_command(job: JobCommand, path: str | None = None) -> None:
    """Raise JobFailedError when the program or the script of the command does not exist."""
    first = job.argv[0]
    program = _skip_assignments(job.argv)
    if program >= len(job.argv):
        raise JobFailedError(
            "the command only sets variables",
            where=first,
            hint="add the program to run",
            code="program-missing",
        )
    first = job.argv[program]
    if which(first, Path(job.cwd), path) is None:
        if len(job.argv) == 1 and " " in first:
            raise JobFailedError(
                f"there is no program '{first}'",
                hint=f"write the words apart, without quotes: -- {first}",
                code="program-missing",
            )
        raise JobFailedError(
            f"there is no program '{first}'", hint=_near_program(first, job, path), code="program-missing"
        )
    if job.launcher_path is None and job.launcher_index != program:
        word = job.argv[job.launcher_index]
        raise JobFailedError(
            f"there is no program '{word}'", hint=_near_program(word, job, path), code="program-missing"
        )
    certain = job.launcher in ("python", "torchrun", "accelerate", "deepspeed", "shell")
    script = job.script or job.shell_script
    if certain and script and job.inner_line is None and not Path(script).exists():
        folder = Path(script).parent
        names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        near = get_close_matches(Path(script).name, names, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"the job starts in {job.cwd}"
        raise JobFailedError("there is no such script", where=script, hint=hint, code="script-missing")


def _skip_assignments(words: list[str]) -> int:
    return next((n for n, w in enumerate(words) if not ASSIGNMENT.match(w)), len(words))


def _near_program(word: str, job: JobCommand, path: str | None) -> str:
    if word.endswith(".py") and absolute(word, Path(job.cwd)).is_file():
        return f"write: python {word}"
    names: set[str] = set()
    for folder in (path or os.environ.get("PATH", "")).split(os.pathsep):
        try:
            names.update(os.listdir(folder or "."))
        except OSError:
            continue
    near = get_close_matches(Path(word).name, sorted(names), n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else "check the spelling, or give its full path"
