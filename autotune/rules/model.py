"""A rule as it is written in YAML."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from autotune.records.base import Record
from autotune.records.sites import SiteKind
from autotune.records.terms import Applicability, Confidence, Severity, Surface, Tier
from autotune.rules.steps import Step

RULE_ID = r"^[a-z][a-z0-9]*/[a-z0-9]+(-[a-z0-9]+)*$"
RuleId = Annotated[str, Field(pattern=RULE_ID)]


def _as_list(value: object) -> object:
    return [value] if isinstance(value, dict) else value


class When(Record):
    """The condition: every line of `all`, at least one of `any`, not one of `none`, and nothing of `unless`.

    A line of `none` that cannot be decided leaves the rule undecided; one of `unless` counts only when it is
    known to hold.
    """

    all: list[str] = Field(default_factory=list)
    any: list[str] = Field(default_factory=list)
    none: list[str] = Field(default_factory=list)
    unless: list[str] = Field(default_factory=list)


class GainWay(Record):
    """One way to bound the gain: a ratio of step times, or the share of the step that can vanish."""

    ratio: str | None = None
    step_time_saved_frac: str | None = None
    applies_if: str | None = None
    loose: bool = Field(
        default=False, description="the bound is far above the truth: it does not set the severity"
    )
    basis: str

    @model_validator(mode="after")
    def _one(self) -> GainWay:
        if (self.ratio is None) == (self.step_time_saved_frac is None):
            raise ValueError("give exactly one of ratio and step_time_saved_frac")
        return self


class FixWay(Record):
    """One way to mend it; the ways are listed in order of preference."""

    surface: Surface
    title: str
    applies_if: str | None = None
    applicability: Applicability = "safe"
    requires: list[str] = Field(
        default_factory=list, description="conditions that must hold after what is applied before"
    )
    predicts: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description='facts this makes true; "=group.name" takes another fact\'s value'
    )
    parity: Tier | None = Field(
        default=None, description="where this way needs another tier of comparison than the rule"
    )
    steps: list[Step] = Field(default_factory=list, description="empty: advice only")


class Example(Record):
    """Facts and what the rule must answer to them; null is a fact that does not apply."""

    name: str
    facts: dict[str, bool | int | float | str | list[str] | None]
    expect: Literal["match", "no-match", "unknown"]
    message: str | None = Field(default=None, description="the rendered message, when it is to be compared")
    fix: str | None = Field(default=None, description="title of the first fix that must be offered")


class Rule(Record):
    """One rule file."""

    id: RuleId
    title: str
    severity: Severity = Field(
        description="critical and info stand as written; otherwise it holds where no bound can be computed"
    )
    confidence: Confidence
    when: When
    evidence: list[str] = Field(default_factory=list)
    gain: Annotated[list[GainWay], BeforeValidator(_as_list)] = Field(
        default_factory=list, description="the first way whose facts are known is used"
    )
    message: str
    caution: str = ""
    fix: list[FixWay] = Field(default_factory=list)
    parity: Tier | None = None
    sites: list[SiteKind] = Field(
        default_factory=list, description="places to show beside those of the fix's steps"
    )
    after: list[RuleId] = Field(default_factory=list)
    excludes: list[RuleId] = Field(default_factory=list)
    together_with: list[RuleId] = Field(default_factory=list)
    explained_by: list[RuleId] = Field(default_factory=list)
    references: list[str] = Field(default_factory=list)
    examples: list[Example] = Field(default_factory=list)

    @property
    def category(self) -> str:
        return self.id.split("/", 1)[0]
