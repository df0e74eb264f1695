"""A stored verdict judged again from its own launches: is it what they say?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autotune.errors import InputError
from autotune.records.verdict import Verdict
from autotune.store import read_record
from autotune.verify.verdict import recompute


@dataclass(frozen=True, slots=True)
class Recheck:
    """One verdict; `differences` names the fields that come out otherwise."""

    path: Path
    verdict: Verdict
    again: Verdict
    differences: tuple[str, ...]


def recheck(path: Path) -> Recheck:
    """Raises InputError for a file that is no verdict."""
    stored = read_record(path, Verdict)
    try:
        again = recompute(stored)
    except (ArithmeticError, LookupError, ValueError) as fault:
        raise InputError(
            f"the verdict cannot be judged again, its parts do not fit together ({fault})",
            where=str(path),
            hint="take the file as verify wrote it",
            code="record-broken",
        ) from fault
    names = [name for name in Verdict.model_fields if getattr(stored, name) != getattr(again, name)]
    return Recheck(path, stored, again, tuple(names))


def recheck_run(run: Path) -> list[Recheck]:
    """Every verdict of a run, or of any folder of verdicts, in the order of their folders."""
    return [recheck(path) for path in sorted(run.glob("**/verdict.json"))]
