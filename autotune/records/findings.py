"""The diagnosis of a run: what is wrong, what could not be decided, what was checked and is fine."""

from __future__ import annotations

from pydantic import Field

from autotune.records.base import Document, Record
from autotune.records.facts import FactScalar, FactValue
from autotune.records.terms import Applicability, Confidence, Severity, Surface, Tier


class Evidence(Record):
    """One number behind a finding."""

    fact: str
    value: FactScalar | list[str] | None
    unit: str = ""
    text: str  # ready to print, e.g. "47 % of batch tokens are padding"
    basis: str = ""


class Gain(Record):
    """An upper bound of what the fix is worth; None where no bound can be given."""

    ratio_upper: float | None = None
    basis: str = ""


class CodeSite(Record):
    """A place in the user's code; line and columns count from 1, columns in characters."""

    file: str
    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    callee: str = ""
    code: str = ""


class FixStep(Record):
    """One edit primitive of `autotune.apply` with its parameters, already rendered."""

    action: str
    arguments: dict[str, object] = Field(default_factory=dict)


class Fix(Record):
    """One way to mend a finding, in the order of preference the rule gives; its steps go together."""

    surface: Surface
    title: str
    applicability: Applicability = "safe"
    steps: list[FixStep] = Field(default_factory=list)  # empty: advice only
    requires: list[str] = Field(default_factory=list)  # conditions on the state this fix is applied in
    predicts: dict[str, FactScalar] = Field(default_factory=dict)  # facts afterwards; "=name": another fact's
    parity: Tier | None = None  # where this way needs another tier than its rule


class Finding(Record):
    """A rule that matched."""

    rule: str
    title: str
    severity: Severity
    confidence: Confidence
    message: str
    evidence: list[Evidence]
    gain: Gain
    sites: list[CodeSite] = Field(default_factory=list)
    fixes: list[Fix] = Field(default_factory=list)
    caution: str = ""
    parity: Tier | None = None
    explained_by: str | None = None  # the finding that causes this symptom
    after: list[str] = Field(default_factory=list)
    excludes: list[str] = Field(default_factory=list)
    together_with: list[str] = Field(default_factory=list)
    references: list[str] = Field(default_factory=list)


class Undecided(Record):
    """A rule whose conditions need facts this run does not have."""

    rule: str
    title: str
    missing: list[str]
    decided_by: list[str]  # what the user can do to decide it


class Passed(Record):
    """A rule that was checked and did not match."""

    rule: str
    title: str
    margin: str = ""  # how far from firing, e.g. "padding 3 %, limit 10 %"


class NotApplicable(Record):
    """A rule that says nothing about this kind of job: a fact of its condition does not apply here."""

    rule: str
    title: str
    reason: str = ""


class Diagnosis(Document):
    """The answer of `analyze`; `verdict` is one sentence."""

    run: str
    verdict: str
    facts: dict[str, FactValue]
    findings: list[Finding]  # most important first
    undecided: list[Undecided]
    passed: list[Passed]
    not_applicable: list[NotApplicable] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)  # validity warnings, lowered confidence
