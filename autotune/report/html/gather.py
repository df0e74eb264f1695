"""Read everything a run folder holds for the page. What is missing is None or empty; nothing is made up."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from autotune.errors import AutotuneError
from autotune.records.base import Document
from autotune.records.findings import Diagnosis
from autotune.records.ladder import Ladder
from autotune.records.observation import Observation
from autotune.records.plan import PatchedJob
from autotune.records.run import RunRecord
from autotune.records.timeline import TracePicture
from autotune.records.trace import TraceSummary
from autotune.records.verdict import Verdict
from autotune.report.html.view import Change
from autotune.report.sources import sources_of
from autotune.store import read_record

D = TypeVar("D", bound=Document)


@dataclass(frozen=True)
class Side:
    """One state of the job: as it was, or as it is now."""

    name: str
    diagnosis: Diagnosis | None
    observation: Observation | None
    traces: TraceSummary | None
    picture: TracePicture | None = None


@dataclass(frozen=True)
class Other:
    """What a run's traces are held against: the summary and, where it is kept, the trace itself."""

    traces: TraceSummary
    trace_file: Path | None


@dataclass(frozen=True)
class Material:
    """What the page is made from."""

    run: str
    named: str  # how the user names the run in further commands; "" for the latest
    card: RunRecord
    before: Side
    after: Side | None
    ladder: Ladder | None
    verdicts: list[tuple[str, Verdict]]
    changes: dict[str, Change] = field(default_factory=dict)  # rule -> its edits
    kept_change: Change | None = None
    notes: list[str] = field(default_factory=list)
    made_at: str = ""

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis of the job as it was."""
        assert self.before.diagnosis is not None
        return self.before.diagnosis


def gather(run: Path, *, named: str = "", against: Other | None = None) -> Material:
    """Everything of a run; `against` is the other side of the trace tables. Raises InputError without a
    diagnosis."""
    from autotune.report.html.changes import changes_of, kept_change_of

    sources = sources_of(run)
    card, diagnosis, ladder = sources.run, sources.diagnosis, sources.ladder
    home = run if card.kind == "trace" else run / "launches" / "observe"
    notes: list[str] = []
    name = "before" if against is not None else "as it was"
    before = _side(name, home, diagnosis, _draw(trace_file_of(run), notes))
    after = _after(run, ladder, notes)
    if against is not None:
        after = Side("after", None, None, against.traces, _draw(against.trace_file, notes))
    return Material(
        run=run.name,
        named=named,
        card=card,
        before=before,
        after=after,
        ladder=ladder,
        verdicts=_verdicts(run),
        changes=changes_of(diagnosis, before.observation),
        kept_change=kept_change_of(_maybe(run / "patched_job.json", PatchedJob)),
        notes=notes,
        made_at=time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    )


def _side(name: str, home: Path, diagnosis: Diagnosis | None, picture: TracePicture | None) -> Side:
    return Side(
        name=name,
        diagnosis=diagnosis,
        observation=_maybe(home / "observation.json", Observation),
        traces=_maybe(home / "trace_summary.json", TraceSummary),
        picture=picture,
    )


def _after(run: Path, ladder: Ladder | None, notes: list[str]) -> Side | None:
    """The last look at the job with its kept changes."""
    if ladder is None or len(ladder.rungs) < 2:
        return None
    looks = sorted((run / "launches").glob("look-*/observation.json"))
    if not looks:
        return None
    home = looks[-1].parent
    diagnosis = _maybe(home / "diagnosis.json", Diagnosis)
    return _side("with the kept changes", home, diagnosis, _draw(_launch_trace(home), notes))


def _verdicts(run: Path) -> list[tuple[str, Verdict]]:
    paths = sorted(
        (run / "trials").glob("*/verdict.json"), key=lambda p: (not p.parent.name.isdigit(), p.parent.name)
    )
    return [(path.parent.name, read_record(path, Verdict)) for path in paths]


def trace_file_of(run: Path) -> Path | None:
    """The trace of the lowest rank behind a run; None when none was recorded."""
    card = read_record(run / "run.json", RunRecord)
    if card.kind == "job":
        return _launch_trace(run / "launches" / "observe")
    summary = _maybe(run / "trace_summary.json", TraceSummary)
    named = {Path(path).name: Path(path) for path in card.traces}
    first = summary.ranks[0].file.name if summary is not None else ""
    return named.get(first) or next(iter(named.values()), None)


def _launch_trace(home: Path) -> Path | None:
    observation = _maybe(home / "observation.json", Observation)
    ranks = sorted(observation.ranks, key=lambda rank: rank.rank) if observation is not None else []
    return next((home / rank.trace_file for rank in ranks if rank.trace_file), None)


def _draw(path: Path | None, notes: list[str]) -> TracePicture | None:
    """A trace as boxes; one that is gone, or broken, leaves a note."""
    if path is None:
        return None
    if not path.exists():
        notes.append(f"the trace {path.name} is not kept any more, so its timeline is not drawn")
        return None
    from autotune.data import data_dir
    from autotune.trace.timeline import picture_of

    try:
        return picture_of(path, tables_dir=data_dir("rules") / "_tables")
    except AutotuneError as fault:
        notes.append(f"the recorded trace could not be drawn: {fault}")
        return None


def _maybe(path: Path, kind: type[D]) -> D | None:
    return read_record(path, kind) if path.exists() else None
