"""Scores on disk: scores/NAME.json holds every answer of one run, so that it can be judged again."""

from __future__ import annotations

import json
import platform
from datetime import datetime, timezone
from pathlib import Path

import yaml

from bench.faults.analyse import Answer
from bench.faults.cases import HERE, Case
from bench.faults.score import Causes, Mark, Totals, mark, total

SCORES = HERE / "scores"
CAUSES = HERE / "causes.yaml"


def load_causes() -> Causes:
    """slug -> rule ids."""
    return {slug: list(rules or []) for slug, rules in yaml.safe_load(CAUSES.read_text())["causes"].items()}


def machine() -> str:
    """The processor and the number of cores this process may use."""
    import os

    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            x.split(":", 1)[1].strip() for x in cpuinfo.read_text().splitlines() if x.startswith("model name")
        ]
        name = names[0] if names and names[0] != "unknown" else name
    return f"{len(os.sched_getaffinity(0))} cores, {name}"


def write(name: str, answers: list[Answer], command: str) -> Path:
    """Keep the answers; run folders are left out, for they do not outlive the machine."""
    SCORES.mkdir(exist_ok=True)
    document = {
        "when": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": machine(),
        "command": command,
        "answers": [{**answer.to_json(), "run": ""} for answer in answers],
    }
    path = SCORES / f"{name}.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return path


def read(path: Path) -> tuple[dict[str, str], list[Answer]]:
    """The heading of a score, and its answers."""
    document = json.loads(path.read_text())
    answers = [Answer.from_json(data) for data in document.pop("answers")]
    return document, answers


def judge(cases: list[Case], answers: list[Answer], causes: Causes) -> tuple[list[Mark], Totals]:
    """Judge answers again; answers of jobs that no longer exist are left out."""
    by_id = {case.id: case for case in cases}
    marks = [mark(by_id[answer.case], answer, causes) for answer in answers if answer.case in by_id]
    return marks, total(marks)
