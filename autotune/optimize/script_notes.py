"""What a generated script takes over from a job, what it does not, and what a person must still say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.records.script import NotTakenOver, TakenOver


@dataclass
class Notes:
    """For the header of the script; `missing` is also said on the screen."""

    taken: list[TakenOver] = field(default_factory=list)
    left: list[NotTakenOver] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def take(self, what: str, value: str, source: str) -> None:
        from autotune.records.script import TakenOver

        self.taken.append(TakenOver(what=what, value=value, source=source))

    def leave(self, what: str, reason: str) -> None:
        from autotune.records.script import NotTakenOver

        self.left.append(NotTakenOver(what=what, reason=reason))
