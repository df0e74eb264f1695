"""Gets the inject folder into commands that clean their environment, and says when nothing can.

Variables are put back right in front of the launcher (`env PYTHONPATH=...`), behind whatever cleans them.
An interpreter told to ignore PYTHONPATH (-I, -E, -S) starts the script through a small runner of the probe.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import NotObservedError
from autotune.observe.command import STANDARD_INPUT
from autotune.observe.layout import PROBE_PACKAGE

if TYPE_CHECKING:
    from autotune.records.command import JobCommand

_RUNNER = "run_main.py"


def attachable(job: JobCommand, has_input: bool = False) -> None:
    """Raise NotObservedError when the command surely cannot be observed from here.

    `has_input`: the job gets our standard input.
    """
    for obstacle in job.obstacles:
        kind, _, reason = obstacle.partition(": ")
        if kind in ("environment", "interpreter") or (kind == STANDARD_INPUT and has_input):
            continue
        raise NotObservedError(
            f"cannot observe '{kind}': {reason}",
            where=job.argv[job.launcher_index],
            code="launcher-unsupported",
        )


def _code_through(runner: str, words: list[str], args_index: int | None) -> None:
    """`python -I -c CODE`: the code is given to the runner; `-Ic CODE` and `-IcCODE` are the same."""
    if args_index is None:
        return
    flag_at, code_at = args_index - 2, args_index - 1
    if re.fullmatch(r"-[A-Za-bd-z]*c", words[flag_at]):
        flags, code = words[flag_at][:-1], words[code_at]
    else:
        flag_at = code_at
        flags, _, code = words[code_at].partition("c")
    words[flag_at:args_index] = [*([flags] if flags != "-" else []), runner, "-c", code]


def with_inject_folder(job: JobCommand, inject: Path, python_path: str) -> tuple[list[str], dict[str, str]]:
    """The command to start, and the variables its leading NAME=VALUE words set."""
    words = list(job.argv)
    if any(o.startswith("interpreter: ") for o in job.obstacles) and job.inner_line is None:
        runner = str(inject / PROBE_PACKAGE / _RUNNER)
        at = job.module_index if job.module is not None else job.script_index
        if job.module is not None and at is not None and words[at] == job.module:
            words[at - 1 : at + 1] = [runner, "-m", job.module]
        elif job.launcher == "python" and at is not None and at > job.launcher_index:
            words.insert(at, runner)
        elif job.launcher == "python" and at is None:
            _code_through(runner, words, job.args_index)
        elif job.interpreter and job.launcher_path:  # a script whose first line names the interpreter
            at = job.launcher_index
            words[at : at + 1] = [job.interpreter, *job.interpreter_flags, runner, job.launcher_path]
    if any(o.startswith("environment: ") for o in job.obstacles) and job.inner_line is None:
        own = [w for w in words[: job.launcher_index] if w.startswith("PYTHONPATH=")]
        folders = [python_path, *(w.partition("=")[2] for w in own)]
        value = os.pathsep.join(p for p in folders if p)
        env = shutil.which("env") or "/usr/bin/env"
        words[job.launcher_index : job.launcher_index] = [env, f"PYTHONPATH={value}"]
    assigned: dict[str, str] = {}
    while words and "=" in words[0] and words[0].split("=", 1)[0].isidentifier():
        name, _, value = words.pop(0).partition("=")
        assigned[name] = value
    if "PYTHONPATH" in assigned:
        assigned["PYTHONPATH"] = os.pathsep.join(p for p in (python_path, assigned["PYTHONPATH"]) if p)
    return words, assigned
