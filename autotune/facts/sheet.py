"""Collects facts while they are derived; refuses names and types the catalogue does not know."""

from __future__ import annotations

from autotune.facts.catalogue import catalogue
from autotune.facts.fact import WATCH_IT
from autotune.records.facts import FactScalar, FactSheet, FactValue

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "list": (list,),
}


class SheetBuilder:
    """Facts of one run in the making. The first value given for a name stays: sources come best first."""

    def __init__(self) -> None:
        self._facts: dict[str, FactValue] = {}

    def put(
        self, name: str, value: FactScalar | list[str] | None, source: str, basis: str = "", *, why: str = ""
    ) -> None:
        """Record a value; None records the fact as absent with the reason `why`."""
        fact = catalogue()[name]
        if value is None:
            self.absent(name, why or "not reported")
            return
        allowed = _PYTHON_TYPES[fact.type]
        if not isinstance(value, allowed) or (fact.type != "bool" and isinstance(value, bool)):
            raise TypeError(f"{name} takes {fact.type}, got {value!r}")
        if fact.choices and value not in fact.choices:
            raise ValueError(f"{name} is one of {fact.choices}, got {value!r}")
        if fact.type == "float" and isinstance(value, int):
            value = float(value)
        known = self._facts.get(name)
        if known is None or known.state == "absent":
            self._facts[name] = FactValue(state="value", value=value, source=source, basis=basis)

    def absent(self, name: str, reason: str) -> None:
        """Record that nothing measured this fact, unless something did."""
        if name in catalogue():
            self._facts.setdefault(name, FactValue(state="absent", reason=reason))

    def not_applicable(self, name: str, reason: str) -> None:
        """Record that the fact has no meaning here (no GPU, no communication...)."""
        known = self._facts.get(name)
        if known is None or known.state == "absent":
            self._facts[name] = FactValue(state="not-applicable", reason=reason)

    def value(self, name: str) -> FactScalar | list[str] | None:
        """The value so far; None when absent or not applicable."""
        known = self._facts.get(name)
        return known.value if known is not None else None

    def number(self, name: str) -> float | None:
        """The value as a number; None when there is none."""
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return float(value)

    def sheet(self, *, watched: bool = False) -> FactSheet:
        """The finished sheet, in the order of the catalogue; what nothing spoke of is absent.

        Of a `watched` job it is not said that it should be watched.
        """
        ordered = {}
        for name, fact in catalogue().items():
            reason = "the watched job does not show it" if watched and fact.decided_by == WATCH_IT else None
            absent = FactValue(state="absent", reason=reason or fact.decided_by)
            ordered[name] = self._facts.get(name) or absent
        return FactSheet(facts=ordered)
