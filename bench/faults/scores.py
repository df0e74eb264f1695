"""Scores on disk: scores/NAME.json holds every answer of one run, so that it can be judged again."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml

from bench.faults.analyse import Answer
from bench.faults.cases import HERE, Case
from bench.faults.score import Causes, Mark, Totals, mark, total

SCORES = HERE / "scores"
CAUSES = HERE / "causes.yaml"


def load_causes() -> Causes:
    """slug -> rule ids."""
    return {slug: list(rules or []) for slug, rules in yaml.safe_load(CAUSES.read_text())["causes"].items()}


# Options that say where and in which pieces, not how.
_PLACES = ("--only", "--skip", "--work", "--results", "--python", "--minutes", "--kernels")


def command_line() -> str:
    """The command of this process, without what differs between pieces of one run."""
    words, given = [], iter(word for word in sys.argv[1:] if word != "--resume")
    for word in given:
        name, _, value = word.partition("=")
        if name not in _PLACES:
            words.append(word)
        elif not value:
            next(given, None)
    return " ".join(["python -m bench.faults", *([shlex.join(words)] if words else [])])


def machine(gpu: bool = False) -> str:
    """The processor and the number of cores this process may use, and the GPU where it is asked for."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            x.split(":", 1)[1].strip() for x in cpuinfo.read_text().splitlines() if x.startswith("model name")
        ]
        name = names[0] if names and names[0] != "unknown" else name
    return f"{len(os.sched_getaffinity(0))} cores, {name}" + (f", {_gpu()}" if gpu else "")


def _gpu() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "GPU of unknown name"
    line = [tool, "--query-gpu=name", "--format=csv,noheader"]
    names = subprocess.run(line, capture_output=True, text=True).stdout.split("\n")
    return names[0].strip() or "GPU of unknown name"


def commit() -> str:
    """The commit of the code that runs, and whether files of it were changed since; scores do not count."""
    git = ["git", "-C", str(HERE)]
    try:
        name = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        )
        line = [
            *git,
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            ":/",
            ":(exclude,top)bench/faults/scores",
        ]
        changed = subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    return name.stdout.strip() + (" with changes" if changed else "")


def heading(gpu: bool, at_commit: str, wall_s: float, others_cores: float | None = None) -> dict[str, Any]:
    """What is said of a run of this process: when, where, how, on which code, how long and beside what.

    `others_cores`: what other programs used of the cores, known at the end of the run.
    """
    return {
        "when": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": machine(gpu),
        "command": command_line(),
        "commit": at_commit,
        "wall_s": round(wall_s, 1),
        "others_cores": others_cores,
    }


def write(path: Path, answers: list[Answer], heading: dict[str, Any]) -> None:
    """Keep the answers; run folders are left out, for they do not outlive the machine."""
    write_json(path, {**heading, "answers": [{**answer.to_json(), "run": ""} for answer in answers]})


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Whoever ends this process finds the old file or the new one."""
    beside = _beside(path)
    try:
        beside.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        beside.replace(path)
    except OSError as fault:
        raise SystemExit(f"{path}: {fault.strerror}") from fault


def can_be_written(path: Path) -> None:
    """Ends the process when results could not be kept there, before hours are spent on them."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise SystemExit(f"{path}: a folder, where the file of results is to be")
        _beside(path).write_text("")
        _beside(path).unlink()
    except OSError as fault:
        raise SystemExit(f"{fault.filename or path}: {fault.strerror}") from fault


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def read(path: Path) -> tuple[dict[str, Any], list[Answer]]:
    """The heading of a score, and its answers."""
    document = document_of(path, "answers")
    try:
        return document, [Answer.from_json(data) for data in document.pop("answers")]
    except (KeyError, TypeError, ValueError) as fault:
        raise SystemExit(f"{path}: an answer is not whole ({type(fault).__name__}: {fault})") from fault


def document_of(path: Path, holds: str) -> dict[str, Any]:
    """A file of results; `holds`: the list in it. Ends the process when it is none."""
    try:
        document = json.loads(path.read_text())
    except OSError as fault:
        raise SystemExit(f"{path}: {fault.strerror}") from fault
    except ValueError as fault:
        raise SystemExit(f"{path}: damaged ({fault}); another --results begins anew") from fault
    if not isinstance(document, dict) or not isinstance(document.get(holds), list):
        other = "a plain run" if holds == "jobs" else "a run with --fix"
        raise SystemExit(f"{path}: no file of results with {holds}; is it one of {other}?")
    return document


def judge(
    cases: list[Case], answers: list[Answer], causes: Causes, wall_s: float | None = None
) -> tuple[list[Mark], Totals]:
    """Judge answers again; answers of jobs that no longer exist are left out. `wall_s`: of the whole run."""
    by_id = {case.id: case for case in cases}
    marks = [mark(by_id[answer.case], answer, causes) for answer in answers if answer.case in by_id]
    totals = total(marks)
    return marks, totals if wall_s is None else replace(totals, seconds=round(wall_s, 1))
