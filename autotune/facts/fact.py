"""What a fact is: a name with a type, a unit, a meaning and the place it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FactType = Literal["bool", "int", "float", "str", "list"]

Unit = Literal[
    "",
    "frac",
    "ratio",
    "count",
    "tokens",
    "tokens_per_s",
    "ms",
    "s",
    "hours",
    "us",
    "gib",
    "gib_per_s",
    "gb_per_s",
    "tflops",
    "mhz",
    "celsius",
    "watt",
]

Source = Literal["probe", "trace", "command", "derived", "nvml", "table"]

WATCH_IT = "run the job under autotune analyze"


@dataclass(frozen=True, slots=True)
class Fact:
    """One entry of the catalogue.

    `decided_by` says what a user can do to have the fact when a run lacks it; `choices` lists the values a
    string can take. A fact's value in a run is a value, absent, or not applicable; absent is never zero.
    """

    name: str
    type: FactType
    unit: Unit
    meaning: str
    source: Source
    decided_by: str = WATCH_IT
    choices: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        return self.name.split(".", 1)[0]
