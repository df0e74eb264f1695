"""What `--json` answers where the answer is no record of a run: lists, explanations, small receipts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Document, Record
from autotune.records.facts import FactValue
from autotune.records.run import RunRecord
from autotune.records.terms import Confidence, Severity, Surface, Tier


class CodePage(Record):
    """One error code or exit code."""

    code: str
    exit_code: int
    means: str
    todo: str = ""


class CodePages(Document):
    """`explain`: one page, or all."""

    codes: list[CodePage]


class CompletionAnswer(Document):
    """`completion`."""

    shell: str
    script: str


class RunRow(Record):
    """One run in the list; of a run whose card cannot be read only id, state and error are known."""

    id: str
    state: str  # a state of the card, "interrupted", or "unreadable"
    kind: str | None = None
    created: str | None = None
    command: list[str] = Field(default_factory=list)
    traces: list[str] = Field(default_factory=list)
    error: str | None = None


class RunList(Document):
    """`runs`: oldest first."""

    runs: list[RunRow]


class RunFiles(Document):
    """`show`: one run and where its records lie."""

    run: RunRecord
    state: str  # as in `runs`
    folder: str
    files: list[str]  # relative to the folder
    launches: list[str]


class FactRow(Record):
    """One fact of the catalogue, with its value when a run was named."""

    name: str
    type: str
    unit: str
    meaning: str
    source: str
    choices: list[str]
    decided_by: str
    in_run: FactValue | None = None


class FactList(Document):
    """`facts`."""

    facts: list[FactRow]


class RuleRow(Record):
    """One rule in the list."""

    id: str
    title: str
    severity: Severity
    confidence: Confidence
    category: str
    parity: Tier | None
    surfaces: list[Surface]
    facts: list[str]  # that its condition reads
    pack: str


class RuleList(Document):
    """`rules list`."""

    rules: list[RuleRow]


class ConditionLine(Record):
    """One line of a rule's condition; the mark says whether it holds in the run."""

    depth: int
    mark: Literal["✓", "✗", "?", " "]
    text: str
    values: list[str] = Field(default_factory=list)


class RuleExplanation(Document):
    """`rules explain`."""

    rule: str
    answer: Literal["match", "no-match", "unknown", ""]  # empty without a run
    lines: list[ConditionLine]
    missing: list[str]
    decided_by: list[str]
    margin: str


class RuleProblem(Record):
    """One error or warning in a rule file; line and column count from 1."""

    path: str
    line: int
    column: int
    level: Literal["error", "warning"]
    message: str


class RuleProblems(Document):
    """`rules lint`."""

    problems: list[RuleProblem]


class ExampleResult(Record):
    """One example of a rule; no fault: it passed."""

    rule: str
    example: str
    fault: str


class ExampleResults(Document):
    """`rules test`."""

    examples: list[ExampleResult]


class RuleFile(Document):
    """`rules new`."""

    path: str


class RuleCalibrationRow(Record):
    """What a rule promised and what trials of it measured; bound and measured are medians."""

    rule: str
    trials: int
    kept: int
    predicted_upper: float | None
    measured: float
    reached_frac: float | None
    above_bound: int


class TrialRow(Record):
    """One verified change."""

    run: str
    rules: list[str]
    predicted_upper: float | None
    measured: float
    interval: tuple[float, float] | None
    kept: bool
    within_bound: bool | None


class Calibration(Document):
    """`rules calibration`."""

    rules: list[RuleCalibrationRow]
    trials: list[TrialRow]


class Reverted(Document):
    """`apply --revert`: the files taken away or put back."""

    reverted: list[str]


class ScriptWritten(Document):
    """`apply --template`."""

    script: str
    launch: str
    missing: list[str] = Field(default_factory=list)  # what a person must set before it trains as the job


class ScriptFields(Document):
    """`generate --fields`: a line for each setting."""

    fields: list[str]


class GeneratedScript(Document):
    """`generate`."""

    script: str
    launch: str
    packed: bool  # whether rows hold several examples
    packing_reason: str


class EnvironmentWritten(Document):
    """`apply --environment`."""

    files: list[str]
    proven: bool  # whether the packages are those of a change that was proven


class ConfigValue(Record):
    """One key of the configuration and where its value comes from."""

    key: str
    value: bool | int | float | str | list[str] | None
    origin: str  # "default", or file:line
    means: str


class ConfigShown(Document):
    """`config show`."""

    file: str | None
    values: list[ConfigValue]


class SchemaNames(Document):
    """`schema` without a name: every answer and record there is a schema of."""

    schemas: list[str]


class Exported(Document):
    """`report` with files or tracking services: what was written where."""

    written: list[str]
