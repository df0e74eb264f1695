"""Whether other programs worked on the cores that a launch was timed on.

A basis for reading times, never a correction of them: nobody knows what the launch would have taken alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

CPU_IDLE = 0.15  # of the cores; more idle time, and nobody waited for one
CPU_TAKEN = 0.15  # of the cores, that other programs took


class CpuShare(NamedTuple):
    """The cores a launch might use, those that other programs took of them, and the idle part; means."""

    cores: int
    foreign_cores: float
    idle_frac: float

    @property
    def is_shared(self) -> bool:
        """Other programs took cores, and none was left over."""
        return self.idle_frac < CPU_IDLE and self.foreign_cores > CPU_TAKEN * self.cores


def shared_note(launches: Sequence[CpuShare]) -> str | None:
    """One line on timed launches that ran beside other work; None when none did, as far as is known."""
    shared = [share for share in launches if share.is_shared]
    if not shared:
        return None
    where = "while this was timed"
    if len(launches) > 1:
        where = f"in {len(shared)} of {len(launches)} timed launches"
    taken, idle = median(s.foreign_cores for s in shared), median(s.idle_frac for s in shared)
    return (
        f"the CPU was shared {where}: other programs used {taken:.1f} of {shared[0].cores} cores, {idle:.0%} "
        f"stayed idle; times, and what is worked out from them, hold for that load"
    )
