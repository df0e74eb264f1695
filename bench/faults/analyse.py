"""Jobs of the bench under `autotune analyze`, and what it said of each."""

from __future__ import annotations

import json
import os
import shutil
import signal
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


class Analysis:
    """`autotune analyze --json` at work on a job laid out under `work`."""

    def __init__(self, case: Case, work: Path, steps: int, python: str = sys.executable) -> None:
        self.case, self.work = case, work
        job, env = prepare(case, work)
        line = [sys.executable, "-m", "autotune", "analyze", "--json", "--quiet", "--steps", str(steps)]
        line += ["--runs-dir", str(work / "runs"), "--", *command(case, python)]
        self.held_s = 0.0
        self._held_at_s: float | None = None
        self._ended_s: float | None = None
        self._held: list[int] = []
        self.started_s = time.monotonic()
        with open(work / "stdout", "wb") as out, open(work / "stderr", "wb") as err:
            self.process = subprocess.Popen(line, cwd=job, env=env, stdout=out, stderr=err)

    def steps_began(self) -> bool:
        """A rank of the job is at its first step."""
        return self._seen("raw/rank-*")

    def ran_s(self) -> float:
        """How long it has run, without the time it was held."""
        now_s = self._ended_s or time.monotonic()
        held_now_s = now_s - self._held_at_s if self._held_at_s is not None else 0.0
        return now_s - self.started_s - self.held_s - held_now_s

    def job_is_over(self) -> bool:
        """The job's processes are gone: what is left is reading what was seen."""
        return self.is_over() or self._seen("observation.json") or self._left_s() <= 0

    def is_over(self) -> bool:
        """autotune has ended; to be asked often, for this notes when."""
        if self._ended_s is None and self.process.poll() is not None:
            self._ended_s = time.monotonic()
        return self._ended_s is not None

    def _seen(self, glob: str) -> bool:
        return any((self.work / "runs").glob(f"at-*/launches/observe/{glob}"))

    def hold(self) -> None:
        """Stop every process of it for a while."""
        if self._held_at_s is None:
            self._held_at_s = time.monotonic()
            while found := [pid for pid in tree(self.process.pid) if pid not in self._held]:
                for pid in found:
                    _send(pid, signal.SIGSTOP)
                self._held += found

    def go_on(self) -> None:
        """Let it go on."""
        if self._held_at_s is not None:
            self.held_s += time.monotonic() - self._held_at_s
            for pid in reversed(self._held):
                _send(pid, signal.SIGCONT)
            self._held_at_s, self._held = None, []

    def answer(self) -> Answer:
        """Wait for the end, and what was said."""
        try:
            code = self.process.wait(timeout=max(0.0, self._left_s()))
        except subprocess.TimeoutExpired:
            self.give_up()
            return Answer(self.case.id, float(LIMIT_S), -1, failure=f"no answer within {LIMIT_S} s")
        self.is_over()
        seconds = round(self.ran_s(), 1)
        runs = sorted((self.work / "runs").glob("at-*"))
        run = str(runs[-1]) if runs else ""
        stdout, stderr = ((self.work / name).read_text(errors="replace") for name in ("stdout", "stderr"))
        try:
            document = json.loads(stdout)
            findings = tuple(_said(finding) for finding in document["findings"])
        except (ValueError, KeyError):
            failure = (stderr or stdout).strip()[-600:]
            return Answer(self.case.id, seconds, code, run, failure=failure or "no diagnosis")
        failure = stderr.strip()[-600:] if code else ""
        lines = evidence_lines(self.case)
        return Answer(self.case.id, seconds, code, run, document["verdict"], findings, failure, lines)

    def _left_s(self) -> float:
        return LIMIT_S - self.ran_s()

    def give_up(self) -> None:
        """End it and its job."""
        self.go_on()
        self.process.terminate()  # autotune ends its job before it leaves
        self.process.wait()


def tree(root: int) -> list[int]:
    """A process and all below it."""
    above: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            above.setdefault(parent, []).append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue
    found = [root]
    for pid in found:
        found += above.get(pid, [])
    return found


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


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
