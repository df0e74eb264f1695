"""Jobs of the bench under `autotune analyze`, and what it said of each."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.faults.cases import Case, command, edited_sources, lay_out

LIMIT_S = 300.0
_END_S = 20.0  # that autotune has to end its job and itself
CUT_OFF = "cut off by the end of the visit"
_CHECKED = "instructions"  # folder beside those of the jobs
_ASKS_FOR_INSTRUCTIONS = re.compile(r"\b__\w+_chk_kernel")  # in the compiler's own trial sources


@dataclass(frozen=True)
class Said:
    """A finding, as far as the score needs it; places are `file:first line-last line`."""

    rule: str
    title: str
    severity: str
    explained_by: str | None = None
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pace:
    """The steps of the timing window: without the profiler, its ends read when the device has caught up."""

    ms: float  # of a step: length of the window over its steps
    steps: int
    median_ms: float
    tokens: float | None  # of a step, with padding

    @classmethod
    def read(cls, path: Path) -> Pace | None:
        """From observation.json; None where no window was closed. Of several ranks the slowest."""
        data = json.loads(path.read_text())
        paces = [pace for rank in data["ranks"] if (pace := cls._of_rank(rank)) is not None]
        return max(paces, key=lambda pace: pace.ms) if paces else None

    @classmethod
    def _of_rank(cls, rank: dict[str, Any]) -> Pace | None:
        windows = rank["windows"]
        at = next((n for n, window in enumerate(windows) if window["name"] == "timing"), None)
        if at is None or at + 1 >= len(windows):
            return None
        begin, end = windows[at], windows[at + 1]
        inside = [s for s in rank["steps"] if begin["begins_after"] < s["index"] <= end["begins_after"]]
        if not inside:
            return None
        tokens = [step["tokens"] for step in inside]
        return cls(
            ms=round(1000 * (end["synced_s"] - begin["synced_s"]) / len(inside), 3),
            steps=len(inside),
            median_ms=round(statistics.median(step["duration_ms"] for step in inside), 3),
            tokens=None if None in tokens else statistics.fmean(tokens),
        )

    def against(self, other: Pace) -> float:
        """How many times as long as the other's, for a token where both know their tokens."""
        if self.tokens and other.tokens:
            return (self.ms / self.tokens) / (other.ms / other.tokens)
        return self.ms / other.ms


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
    pace: Pace | None = None

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
        data["pace"] = Pace(**data["pace"]) if data.get("pace") else None  # type: ignore[arg-type]
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
    compiled = work / "inductor"
    if (checked := work.parent / _CHECKED).is_dir():
        shutil.copytree(checked, compiled)
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(compiled), **case.env}
    return job, env


def keep_checked(work: Path) -> None:
    """What the compiler found out about the machine is kept for the next job that compiles.

    Which vector instructions there are it finds by compiling a few lines for each, 10 seconds on two cores;
    on a machine of a user's that was done once. What it compiled of the job is not kept.
    """
    compiled, checked = work / "inductor", work.parent / _CHECKED
    if checked.exists():
        return
    for library in compiled.glob("*/*.so"):
        source = library.with_suffix(".cpp")
        if source.is_file() and _ASKS_FOR_INSTRUCTIONS.search(source.read_text(errors="replace")):
            folder = checked / library.parent.name
            folder.mkdir(parents=True, exist_ok=True)
            for file in (library, source):
                shutil.copy2(file, folder)


def installed(names: tuple[str, ...], python: str, folder: Path | None = None) -> list[str]:
    """Those of the packages that an interpreter finds, or that it finds in `folder`."""
    if not names:
        return []
    if folder is not None:
        names = tuple(name for name in names if (folder / name).is_dir())
    ask = "import importlib.util, sys; print(*filter(importlib.util.find_spec, sys.argv[1:]))"
    env = os.environ if folder is None else with_folder(folder)
    return subprocess.run(
        [python, "-c", ask, *names], capture_output=True, text=True, check=True, env=env
    ).stdout.split()


def with_folder(folder: Path) -> dict[str, str]:
    """The environment with a folder of packages in front."""
    return {**os.environ, "PYTHONPATH": _path(folder)}


def _path(folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


@dataclass(frozen=True)
class Setting:
    """How jobs are run: of all of them the same."""

    steps: int
    python: str = sys.executable
    kernels: Path | None = None  # folder with the fused kernels
    limit_s: float = LIMIT_S  # of one job, without the time it was held
    ends_at_s: float = math.inf  # on the monotonic clock: what runs then is given up


def typed(case: Case, work: Path, setting: Setting) -> list[str]:
    """The command that analyses a job."""
    line = [sys.executable, "-m", "autotune", "analyze", "--json", "--quiet"]
    line += ["--steps", str(setting.steps), "--runs-dir", str(work / "runs"), "--"]
    if case.kernels and setting.kernels is not None:  # for the job alone, not for autotune
        line += ["env", f"PYTHONPATH={_path(setting.kernels)}"]
    return [*line, *command(case, setting.python)]


class Analysis:
    """`autotune analyze --json` at work on a job laid out under `work`."""

    limit_s: float = LIMIT_S
    ends_at_s: float = math.inf
    _too_late = ""  # why it was ended before it had answered

    def __init__(self, case: Case, work: Path, setting: Setting) -> None:
        self.case, self.work = case, work
        self.limit_s = max(setting.limit_s, case.limit_s or 0.0)
        self.ends_at_s = setting.ends_at_s
        job, env = prepare(case, work)
        line = typed(case, work, setting)
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
            self.end_if_late()
        if self._too_late:
            return Answer(self.case.id, round(self.ran_s(), 1), -1, failure=self._too_late)
        self.is_over()
        keep_checked(self.work)
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
        seen = next(Path(run).glob("launches/observe/observation.json"), None) if run else None
        pace = Pace.read(seen) if seen is not None else None
        return Answer(self.case.id, seconds, code, run, document["verdict"], findings, failure, lines, pace)

    def _left_s(self) -> float:
        return min(self.limit_s - self.ran_s(), self.ends_at_s - time.monotonic())

    def end_if_late(self) -> None:
        """End it where its time, or that of the visit, is over."""
        if self._left_s() <= 0 and not self.is_over():
            ended = time.monotonic() >= self.ends_at_s
            self._too_late = CUT_OFF if ended else f"no answer within {self.limit_s:.0f} s"
            self.give_up()
            self.is_over()

    def give_up(self) -> None:
        """End it and its job, whatever they hang in."""
        self.go_on()
        left = tree(self.process.pid)
        self.process.terminate()  # autotune ends its job before it leaves
        try:
            self.process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            for pid in {*left, *tree(self.process.pid)}:
                _send(pid, signal.SIGKILL)
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
