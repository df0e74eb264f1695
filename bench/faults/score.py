"""The score of a diagnosis: named, named first, false alarms. A finding of severity `info` never counts."""

from __future__ import annotations

from dataclasses import dataclass

from bench.faults.analyse import Answer, Said
from bench.faults.cases import Case

NOTHING = 1.02  # slowdown from which a fault costs something
Causes = dict[str, list[str]]  # slug -> ids of the rules whose title states that cause


@dataclass(frozen=True)
class Mark:
    """How one job was judged."""

    case: Case
    answer: Answer
    first: bool  # the first finding is a planted cause
    named: int  # planted causes that a finding names
    planted: int
    pointed: bool | None  # such a finding points at the planted line; None without a place to point at
    false_alarms: tuple[Said, ...]

    @property
    def all_named(self) -> bool:
        return self.named == self.planted


@dataclass(frozen=True)
class Totals:
    """Shares are between 0 and 1, None where nothing counts."""

    single: int
    single_named: int
    single_first: int
    pair_causes: int
    pair_causes_named: int
    pairs: int
    pairs_first: int
    false_alarms: int  # of the sick jobs
    healthy: int
    healthy_clean: int
    healthy_findings: int
    seconds: float

    @property
    def recall(self) -> float | None:
        return self.single_named / self.single if self.single else None

    @property
    def first_share(self) -> float | None:
        return self.single_first / self.single if self.single else None


def mark(case: Case, answer: Answer, causes: Causes) -> Mark:
    """Judge one answer. A pair's cause counts by its own slug, or by an alternative of the pair."""
    told = [said for said in answer.findings if said.severity != "info"]
    own = [set(causes.get(slug, ())) for slug in case.slugs]
    other = {rule for slug in case.also for rule in causes.get(slug, ())}
    accepted = other.union(*own) if case.slugs else set()
    alone = len(case.slugs) == 1
    spoken = {said.rule for said in told}
    named = sum(bool(spoken & (rules | other if alone else rules)) for rules in own)
    right = [said for said in told if said.rule in accepted]
    pointed = None
    if answer.named_lines and right:
        pointed = any(
            _within(line, place) for said in right for place in said.places for line in answer.named_lines
        )
    return Mark(
        case,
        answer,
        first=bool(told) and told[0].rule in accepted,
        named=named,
        planted=len(case.slugs),
        pointed=pointed,
        false_alarms=tuple(said for said in told if said.rule not in accepted),
    )


def _within(line: str, place: str) -> bool:
    file, _, number = line.rpartition(":")
    where, _, span = place.rpartition(":")
    start, _, end = span.partition("-")
    return file == where and int(start) <= int(number) <= int(end or start)


def total(marks: list[Mark]) -> Totals:
    """Sums over all judged jobs; a job without a diagnosis counts as not named."""
    singles = [m for m in marks if m.planted == 1]
    pairs = [m for m in marks if m.planted > 1]
    healthy = [m for m in marks if m.case.healthy]
    return Totals(
        single=len(singles),
        single_named=sum(m.all_named for m in singles),
        single_first=sum(m.first for m in singles),
        pair_causes=sum(m.planted for m in pairs),
        pair_causes_named=sum(m.named for m in pairs),
        pairs=len(pairs),
        pairs_first=sum(m.first for m in pairs),
        false_alarms=sum(len(m.false_alarms) for m in [*singles, *pairs]),
        healthy=len(healthy),
        healthy_clean=sum(not m.false_alarms and not m.answer.failure for m in healthy),
        healthy_findings=sum(len(m.false_alarms) for m in healthy),
        seconds=round(sum(m.answer.seconds for m in marks), 1),
    )
