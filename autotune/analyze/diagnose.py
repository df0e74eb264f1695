"""From a launch or saved traces to a diagnosis: summary, facts, rules; every stage is kept as a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.analyze.trace_set import require_one_job, trace_notes, undecided_here
from autotune.analyze.verdict import verdict_sentence
from autotune.errors import AutotuneError, InputError
from autotune.shared_cpu import CpuShare, shared_note
from autotune.store import read_record, write_record

if TYPE_CHECKING:
    from autotune.records.facts import FactSheet
    from autotune.records.findings import Diagnosis
    from autotune.records.observation import Observation
    from autotune.records.terms import Severity
    from autotune.records.trace import TraceSummary
    from autotune.rules.load import RuleSet


@dataclass(frozen=True)
class SeverityChoice:
    """The severity a user reports a rule's findings with, and where that was written."""

    rule: str
    severity: Severity
    where: str = ""


@dataclass(frozen=True)
class RuleSources:
    """Rule packs: the built-in one, the user's folders after it, ids switched off, severities replaced."""

    user_dirs: tuple[Path, ...] = ()
    disabled: tuple[str, ...] = ()  # ids, or patterns such as "debug/*"
    severity: tuple[SeverityChoice, ...] = ()

    @property
    def chosen(self) -> bool:
        """Something about the rules was asked for and may be wrong: to be checked before a job is started."""
        return bool(self.user_dirs or self.disabled or self.severity)

    @cached_property
    def loaded(self) -> RuleSet:
        """Read once, so that a run is judged by the rules that were there when it started."""
        from autotune.data import data_dir
        from autotune.facts.catalogue import catalogue
        from autotune.rules.load import load_rules

        return load_rules([data_dir("rules"), *self.user_dirs], self.disabled, catalogue=catalogue())

    def check(self) -> None:
        """Raises InputError (RuleFaults for rule files) where a diagnosis would: before a job is started."""
        _severities(self, [rule.id for rule in self.loaded.rules])


@dataclass(frozen=True)
class Diagnosed:
    """A diagnosis with what it was made from."""

    diagnosis: Diagnosis
    facts: FactSheet
    observation: Observation | None
    traces: TraceSummary | None


def diagnose_launch(run: Path, label: str, rules: RuleSources) -> Diagnosed:
    """Diagnose one launch of a run. A trace that cannot be read becomes a note, not a failure."""
    from autotune.records.observation import Observation

    folder = run / "launches" / label
    observation = read_record(folder / "observation.json", Observation)
    traces, notes = _traces_of(observation, folder)
    return _diagnose(run, folder, observation, traces, rules, notes)


def diagnose_observation(observation: Observation, folder: Path, rules: RuleSources) -> Diagnosis:
    """Diagnose a launch in its own folder; nothing of the run changes."""
    traces, notes = _traces_of(observation, folder)
    return _diagnose(folder, folder, observation, traces, rules, notes).diagnosis


def _traces_of(observation: Observation, folder: Path) -> tuple[TraceSummary | None, list[str]]:
    paths = [folder / rank.trace_file for rank in observation.ranks if rank.trace_file]
    traces: TraceSummary | None = None
    notes: list[str] = []
    if paths:
        try:
            traces = _summarize(paths)
        except AutotuneError as fault:
            notes.append(f"the recorded trace could not be used: {fault}")
    return traces, notes


def diagnose_traces(run: Path, paths: Sequence[Path], rules: RuleSources) -> Diagnosed:
    """Diagnose saved traces of one job. Raises InputError for files that are no traces or of several jobs."""
    summary = _summarize(paths)
    require_one_job(summary)
    return _diagnose(run, run, None, summary, rules, [])


def diagnose_again(run: Path, rules: RuleSources) -> Diagnosed:
    """Derive everything of a run again from what lies on disk."""
    from autotune.analyze.watch import OBSERVE
    from autotune.records.run import RunRecord

    record = read_record(run / "run.json", RunRecord)
    if record.kind == "trace":
        paths = [Path(path) for path in record.traces]
        gone = [str(path) for path in paths if not path.exists()]
        if gone:
            raise InputError("the trace of this run is gone", where=gone[0], code="trace-missing")
        return diagnose_traces(run, paths, rules)
    return diagnose_launch(run, OBSERVE, rules)


def _summarize(paths: Sequence[Path]) -> TraceSummary:
    from autotune.data import data_dir
    from autotune.trace.summary import summarize

    return summarize(paths, tables_dir=data_dir("rules") / "_tables")


def _diagnose(
    run: Path,
    folder: Path,
    observation: Observation | None,
    traces: TraceSummary | None,
    rules: RuleSources,
    notes: list[str],
) -> Diagnosed:
    from autotune.facts.catalogue import catalogue
    from autotune.facts.everything import derive_facts
    from autotune.records.findings import Diagnosis
    from autotune.rules.match import match

    facts = derive_facts(observation, traces)
    rule_set = rules.loaded
    matched = match(
        rule_set.rules,
        facts,
        catalogue=catalogue(),
        sites=observation.sites if observation is not None else (),
        severity=_severities(rules, [loaded.id for loaded in rule_set.rules]),
    )
    diagnosis = Diagnosis(
        run=run.name,
        verdict=_opening(observation)
        + verdict_sentence(facts, matched.findings, matched.undecided, matched.passed),
        facts=facts.facts,
        findings=matched.findings,
        undecided=undecided_here(matched.undecided, traces, watched=observation is not None),
        passed=matched.passed,
        not_applicable=matched.not_applicable,
        notes=[*notes, *_warnings(observation, traces), *rule_set.notes],
    )
    if traces is not None:
        write_record(folder / "trace_summary.json", traces)
    for place in dict.fromkeys((folder, run)) if folder.name in ("observe", run.name) else (folder,):
        write_record(place / "facts.json", facts)
        write_record(place / "diagnosis.json", diagnosis)
    return Diagnosed(diagnosis, facts, observation, traces)


def _severities(rules: RuleSources, known: Sequence[str]) -> dict[str, Severity]:
    from autotune.rules.problems import did_you_mean

    for choice in rules.severity:
        if choice.rule not in known:
            hint = (
                did_you_mean(choice.rule, known, join="did you mean {}?") or "autotune rules list shows all"
            )
            raise InputError(
                f"there is no rule '{choice.rule}'",
                where=choice.where or None,
                hint=hint,
                code="rule-unknown",
            )
    return {choice.rule: choice.severity for choice in rules.severity}


def _warnings(observation: Observation | None, traces: TraceSummary | None) -> list[str]:
    """What lowers the confidence in this diagnosis."""
    notes: list[str] = []
    if observation is not None:
        notes += observation.notes
        load = observation.cpu_load
        shared = shared_note([CpuShare(load.cores, load.foreign_cores, load.idle_frac)]) if load else None
        notes += [shared] if shared else []
        seen = len(observation.ranks)
        if seen < observation.expected_ranks:
            notes.append(f"{seen} of {observation.expected_ranks} ranks reported")
        made = max((len(rank.steps) for rank in observation.ranks), default=0)
        traced = any(rank.trace_file for rank in observation.ranks)
        if observation.mode == "profile" and observation.exit_code == 0 and made and not traced:
            notes.append(
                f"the job ended after {made} steps, before one was profiled: with more steps more is decided"
            )
        faults = sum(len(rank.hook_faults) for rank in observation.ranks)
        if faults:
            notes.append(f"{faults} faults inside the observer; the job was not affected (see faults.log)")
    return notes + (trace_notes(traces) if traces is not None else [])


def _opening(observation: Observation | None) -> str:
    """That the job failed by itself comes before anything its first steps say."""
    from autotune.observe.outcome import failure_sentence, job_failed

    if observation is None or not job_failed(observation):
        return ""
    said = failure_sentence(observation).rstrip(".")
    return f"{said[0].upper()}{said[1:]}. What its steps before that show: "
