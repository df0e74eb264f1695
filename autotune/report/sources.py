"""Everything a run folder holds that an export tells: the card, the diagnosis, the ladder, the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.records.facts import FactSheet
from autotune.records.findings import Diagnosis
from autotune.records.ladder import Ladder
from autotune.records.run import RunRecord
from autotune.records.verdict import Verdict
from autotune.store import read_record

if TYPE_CHECKING:
    from autotune.store import D


@dataclass(frozen=True)
class Sources:
    """One run; ladder and verdict only where optimize and verify ran."""

    folder: Path
    run: RunRecord
    diagnosis: Diagnosis
    ladder: Ladder | None = None
    verdict: Verdict | None = None

    @property
    def facts(self) -> FactSheet:
        """The facts of the diagnosis."""
        return FactSheet(facts=self.diagnosis.facts)

    @property
    def from_job(self) -> bool:
        """A job was watched, so there is something to patch."""
        return self.run.kind == "job"


def sources_of(folder: Path) -> Sources:
    """Read a run. Raises InputError when it has no diagnosis."""
    return Sources(
        folder=folder,
        run=read_record(folder / "run.json", RunRecord),
        diagnosis=read_record(folder / "diagnosis.json", Diagnosis),
        ladder=_maybe(folder / "ladder.json", Ladder),
        verdict=_maybe(folder / "trials" / "verify" / "verdict.json", Verdict),
    )


def _maybe(path: Path, kind: type[D]) -> D | None:
    return read_record(path, kind) if path.is_file() else None
