"""Facts of one run: each a value, absent, or not applicable, with where it came from."""

from __future__ import annotations

from typing import Literal

from autotune.records.base import Document, Record

FactScalar = bool | int | float | str
State = Literal["value", "absent", "not-applicable"]


class FactValue(Record):
    """One fact of one run. `value` is set exactly when `state` is "value"; absent is never zero."""

    state: State
    value: FactScalar | list[str] | None = None
    source: str = ""  # what measured it, e.g. "probe, DataLoader batches"
    basis: str = ""  # over what, e.g. "20 steps, ranks 0-1"
    reason: str = ""  # why it is absent or does not apply


class FactSheet(Document):
    """All facts of a run by catalogue name; names missing here are absent."""

    facts: dict[str, FactValue]

    def get(self, name: str) -> FactValue:
        """The fact, or an absent one."""
        return self.facts.get(name) or FactValue(state="absent", reason="not collected")

    def value(self, name: str) -> FactScalar | list[str] | None:
        """The plain value; None when absent or not applicable."""
        return self.get(name).value
