"""One job of the bench under `autotune analyze`, and what it said."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.faults.cases import Case, command, edited_sources, lay_out

LIMIT_S = 300


@dataclass(frozen=True)
class Said:
    """A finding, as far as the score needs it; places are `file:first line-last line`."""

    rule: str
    title: str
    severity: str
    explained_by: str | None = None
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What autotune said of one job."""

    case: str
    seconds: float
    exit_code: int
    run: str = ""  # the run folder, with facts.json and diagnosis.json
    verdict: str = ""
    findings: tuple[Said, ...] = ()
    failure: str = ""  # why there is no diagnosis
    named_lines: tuple[str, ...] = field(default=())  # `file:line` of the planted evidence

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, object]) -> Answer:
        data = dict(data)
        data["findings"] = tuple(
            Said(**{**said, "places": tuple(said["places"])})
            for said in data["findings"]  # type: ignore[attr-defined]
        )
        data["named_lines"] = tuple(data.get("named_lines", ()))  # type: ignore[arg-type]
        return cls(**data)  # type: ignore[arg-type]


def evidence_lines(case: Case) -> tuple[str, ...]:
    """Where the planted evidence stands in the sick job's files, as `file:line`."""
    if not case.named_by:
        return ()
    return tuple(
        f"{name}:{number}"
        for name, text in edited_sources(case).items()
        for number, line in enumerate(text.splitlines(), 1)
        if case.named_by in line
    )


def prepare(case: Case, work: Path) -> tuple[Path, dict[str, str]]:
    """A fresh folder with the job in it, and the environment it starts in."""
    shutil.rmtree(work, ignore_errors=True)
    job = work / "job"
    lay_out(case, job)
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"), **case.env}
    return job, env


def installed(names: tuple[str, ...], python: str) -> list[str]:
    """Those of the packages that an interpreter finds."""
    if not names:
        return []
    ask = "import importlib.util, sys; print(*filter(importlib.util.find_spec, sys.argv[1:]))"
    return subprocess.run(
        [python, "-c", ask, *names], capture_output=True, text=True, check=True
    ).stdout.split()


def analyse(case: Case, work: Path, steps: int, python: str = sys.executable) -> Answer:
    """Run `autotune analyze --json` on a job laid out under `work`."""
    visible = installed(case.absent, python)
    if visible:
        return Answer(case.id, 0.0, -1, failure=f"needs an environment without {', '.join(visible)}")
    job, env = prepare(case, work)
    line = [sys.executable, "-m", "autotune", "analyze", "--json", "--quiet", "--steps", str(steps)]
    line += ["--runs-dir", str(work / "runs"), "--", *command(case, python)]
    started = time.monotonic()
    try:
        done = subprocess.run(line, cwd=job, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return Answer(case.id, float(LIMIT_S), -1, failure=f"no answer within {LIMIT_S} s")
    seconds = round(time.monotonic() - started, 1)
    runs = sorted((work / "runs").glob("at-*"))
    run = str(runs[-1]) if runs else ""
    try:
        document = json.loads(done.stdout)
        findings = tuple(_said(finding) for finding in document["findings"])
    except (ValueError, KeyError):
        failure = (done.stderr or done.stdout).strip()[-600:]
        return Answer(case.id, seconds, done.returncode, run, failure=failure or "no diagnosis")
    failure = done.stderr.strip()[-600:] if done.returncode else ""
    return Answer(
        case.id, seconds, done.returncode, run, document["verdict"], findings, failure, evidence_lines(case)
    )


def _said(finding: dict[str, object]) -> Said:
    sites: list[dict[str, object]] = finding["sites"]  # type: ignore[assignment]
    places = tuple(
        f"{Path(str(site['file'])).name}:{site['line']}-{site.get('end_line') or site['line']}"
        for site in sites
    )
    return Said(
        str(finding["rule"]),
        str(finding["title"]),
        str(finding["severity"]),
        finding.get("explained_by"),  # type: ignore[arg-type]
        places,
    )
