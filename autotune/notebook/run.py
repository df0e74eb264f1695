"""A recorded run in Python: `from autotune import Run`. Reads records; starts and changes nothing."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.notebook.table import Table
from autotune.store import DEFAULT_RUNS_DIR, find_run, list_runs, read_record

if TYPE_CHECKING:
    from autotune.records.facts import FactScalar, FactSheet, FactValue
    from autotune.records.findings import Diagnosis, Finding
    from autotune.records.ladder import Ladder
    from autotune.records.observation import Observation
    from autotune.records.run import RunRecord
    from autotune.records.verdict import Verdict


class Run:
    """One run: `Run.latest()`, `Run("runs/at-20260101-120000-train")`, or a unique part of its name.

    Records are read when they are asked for. A record the run does not have yet raises InputError with the
    step that makes it; parts that only some runs have (`ladder`, `verification`, `observation`) are None.
    """

    def __init__(self, name: str | Path, runs_dir: str | Path = DEFAULT_RUNS_DIR) -> None:
        """Raises InputError when no run, or more than one, fits `name`."""
        self.folder: Path = find_run(Path(runs_dir), str(name))

    @classmethod
    def latest(cls, runs_dir: str | Path = DEFAULT_RUNS_DIR) -> Run:
        """The newest run that has a diagnosis. Raises InputError when there is none."""
        return cls("latest", runs_dir)

    @classmethod
    def all(cls, runs_dir: str | Path = DEFAULT_RUNS_DIR) -> list[Run]:
        """Every run of a folder, oldest first."""
        return [cls(folder) for folder in list_runs(Path(runs_dir))]

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.folder.name

    @cached_property
    def record(self) -> RunRecord:
        """The card of the run: command, working folder, when it was made, how far it came."""
        from autotune.records.run import RunRecord

        return read_record(self.folder / "run.json", RunRecord)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """The whole diagnosis, also what passed and what could not be decided."""
        from autotune.records.findings import Diagnosis

        return read_record(self.folder / "diagnosis.json", Diagnosis)

    @property
    def verdict(self) -> str:
        """Why the job is slow, in one sentence."""
        return self.diagnosis.verdict

    @property
    def findings(self) -> list[Finding]:
        """Rules that matched, the most important first. `gain.ratio_upper` is a bound, not a measurement."""
        return self.diagnosis.findings

    @cached_property
    def facts(self) -> FactSheet:
        """All facts; each is a value, absent (nothing measured it) or not applicable."""
        from autotune.records.facts import FactSheet

        return read_record(self.folder / "facts.json", FactSheet)

    def fact(self, name: str) -> FactValue:
        """One fact with its state, source and basis; its unit is in its name or in docs/facts.md.

        Raises InputError for a name that is not in the catalogue.
        """
        from difflib import get_close_matches

        from autotune.errors import InputError
        from autotune.facts.catalogue import catalogue

        if name not in catalogue():
            near = get_close_matches(name, catalogue(), n=1)
            hint = f"did you mean '{near[0]}'?" if near else "autotune facts lists them"
            raise InputError(f"there is no fact '{name}'", hint=hint)
        return self.facts.get(name)

    def value(self, name: str) -> FactScalar | list[str] | None:
        """The plain value of a fact; None when absent or not applicable. Raises InputError as `fact`."""
        return self.fact(name).value

    @cached_property
    def observation(self) -> Observation | None:
        """What the watched launch recorded; None for a run made from saved traces."""
        from autotune.records.observation import Observation

        path = self.folder / "launches" / "observe" / "observation.json"
        return read_record(path, Observation) if path.exists() else None

    @cached_property
    def ladder(self) -> Ladder | None:
        """The changes an optimize loop kept and dropped; None when the run was not optimized."""
        from autotune.records.ladder import Ladder

        path = self.folder / "ladder.json"
        return read_record(path, Ladder) if path.exists() else None

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """Every comparison of the run by its folder (`trials/001`, `trials/verify`), in order of names."""
        from autotune.records.verdict import Verdict

        found = sorted((self.folder / "trials").glob("*/verdict.json"))
        return {path.parent.relative_to(self.folder).as_posix(): read_record(path, Verdict) for path in found}

    @property
    def verification(self) -> Verdict | None:
        """The comparison that counts: that of `autotune verify`, else of the last kept rung; or None."""
        if "trials/verify" in self.verdicts:
            return self.verdicts["trials/verify"]
        kept = [rung.verdict for rung in self.ladder.rungs if rung.verdict] if self.ladder else []
        return self.verdicts.get(str(Path(kept[-1]).parent.as_posix())) if kept else None

    @cached_property
    def steps(self) -> Table:
        """Every optimizer step of every launch, with its arm: durations in ms, counts summed over ranks."""
        from autotune.notebook.steps import steps_table

        return steps_table(self.observation, self.verdicts)

    @cached_property
    def facts_table(self) -> Table:
        """One row per fact of the catalogue, absent ones included."""
        from autotune.notebook.tables import facts_table

        return facts_table(self.facts)

    @property
    def findings_table(self) -> Table:
        """One row per finding."""
        from autotune.notebook.tables import findings_table

        return findings_table(self.findings)

    @property
    def rungs(self) -> Table:
        """One row per rung of the ladder: ratios with their interval; no rows when there is no ladder."""
        from autotune.notebook.tables import rungs_table

        return rungs_table(self.ladder)

    @property
    def pairs(self) -> Table:
        """One row per pair of launches of every comparison: how many times as fast the candidate was."""
        from autotune.notebook.tables import pairs_table

        return pairs_table(self.verdicts)

    def __repr__(self) -> str:
        return f"Run({self.name!r})"

    def _repr_html_(self) -> str:
        from autotune.notebook.html import run_card

        return run_card(self)
