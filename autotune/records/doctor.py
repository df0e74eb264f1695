"""What `autotune doctor` found out about this machine and a job's interpreter."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Document, Record


class Check(Record):
    """One question and its answer."""

    name: str
    state: Literal["ok", "warning", "problem", "unknown"]
    detail: str
    do: str = ""  # what to do about it


class DoctorReport(Document):
    """All checks, in the order they were made."""

    checks: list[Check]
    command: list[str] = Field(default_factory=list)

    @property
    def has_problem(self) -> bool:
        """Something stands in the way of observing a job."""
        return any(check.state == "problem" for check in self.checks)
