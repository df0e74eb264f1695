"""Fact sheets from plain values."""

from __future__ import annotations

from autotune.records.facts import FactSheet, FactValue


def sheet_of(values: dict[str, object]) -> FactSheet:
    """A fact sheet; None stands for a fact that does not apply."""
    return FactSheet(
        facts={
            name: FactValue(state="not-applicable")
            if value is None
            else FactValue.model_validate({"state": "value", "value": value, "source": "test"})
            for name, value in values.items()
        }
    )
