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
from autotune.store import read_record

D = TypeVar("D", bound=Document)


@dataclass(frozen=True)
class Side:
    """One state of the job: as it was, or as it is now."""

    name: str
    diagnosis: Diagnosis | None
    observation: Observation | None
    traces: TraceSummary | None


@dataclass(frozen=True)
class Material:
    """What the page is made from."""

    run: str
    named: str  # how the user names the run in further commands; "" for the latest
    card: RunRecord
    before: Side
    after: Side | None
    picture: TracePicture | None
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


def gather(run: Path, *, named: str = "", against: TraceSummary | None = None) -> Material:
    """Everything of a run; `against` is the other side of the trace tables. Raises InputError without a
    diagnosis."""
    from autotune.report.html.changes import changes_of, kept_change_of

    card = read_record(run / "run.json", RunRecord)
    diagnosis = read_record(run / "diagnosis.json", Diagnosis)
    home = run if card.kind == "trace" else run / "launches" / "observe"
    before = _side("as it was", home, diagnosis)
    ladder = _maybe(run / "ladder.json", Ladder)
    notes: list[str] = []
    after = _after(run, ladder)
    if against is not None:
        after = Side(name=against.ranks[0].file.name, diagnosis=None, observation=None, traces=against)
    return Material(
        run=run.name,
        named=named,
        card=card,
        before=before,
        after=after,
        picture=_picture(card, home, before, notes),
        ladder=ladder,
        verdicts=_verdicts(run),
        changes=changes_of(diagnosis, before.observation),
        kept_change=kept_change_of(_maybe(run / "patched_job.json", PatchedJob)),
        notes=notes,
        made_at=time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    )


def _side(name: str, home: Path, diagnosis: Diagnosis | None) -> Side:
    return Side(
        name=name,
        diagnosis=diagnosis,
        observation=_maybe(home / "observation.json", Observation),
        traces=_maybe(home / "trace_summary.json", TraceSummary),
    )


def _after(run: Path, ladder: Ladder | None) -> Side | None:
    """The last look at the job with its kept changes."""
    if ladder is None or len(ladder.rungs) < 2:
        return None
    looks = sorted((run / "launches").glob("look-*/observation.json"))
    if not looks:
        return None
    home = looks[-1].parent
    return _side("with the kept changes", home, _maybe(home / "diagnosis.json", Diagnosis))


def _verdicts(run: Path) -> list[tuple[str, Verdict]]:
    paths = sorted(
        (run / "trials").glob("*/verdict.json"), key=lambda p: (not p.parent.name.isdigit(), p.parent.name)
    )
    return [(path.parent.name, read_record(path, Verdict)) for path in paths]


def _picture(card: RunRecord, home: Path, before: Side, notes: list[str]) -> TracePicture | None:
    """Drawn from the kept trace of the lowest rank; a trace that is gone leaves nothing to draw."""
    if card.kind == "trace":
        named = {Path(path).name: Path(path) for path in card.traces}
        first = before.traces.ranks[0].file.name if before.traces is not None else None
        path = named.get(first or "", Path(card.traces[0]) if card.traces else None)
    else:
        ranks = before.observation.ranks if before.observation is not None else []
        files = [rank.trace_file for rank in sorted(ranks, key=lambda r: r.rank) if rank.trace_file]
        path = home / files[0] if files else None
    if path is None:
        return None
    if not path.exists():
        notes.append("the recorded trace is not kept any more, so its timeline is not drawn")
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
