"""What `--json` answers when a verb fails: one document on stdout, beside the line on stderr."""

from __future__ import annotations

from pydantic import Field

from autotune.records.base import Document, Record


class Fault(Record):
    """One fault; `autotune explain CODE` prints the page of its code."""

    code: str
    what: str
    where: str | None = None  # a file, `file:line:col`, or `file (byte N)`
    todo: str | None = None
    exit_code: int
    problems: list[str] = Field(default_factory=list)  # all errors, where there are several (rule files)


class FaultReport(Document):
    """The whole answer of a verb that failed."""

    error: Fault
