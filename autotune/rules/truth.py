"""The three values of a condition: true, false, unknown; and the two ways a fact can have no value.

Kleene logic: unknown and false is false, unknown and true is unknown. A fact that was not collected makes a
comparison unknown; a fact that does not apply to this run makes it false.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Literal, TypeAlias

Truth: TypeAlias = bool | None  # None: unknown


class Missing(Enum):
    """Why a fact has no value."""

    ABSENT = "absent"
    NOT_APPLICABLE = "not-applicable"


ABSENT: Literal[Missing.ABSENT] = Missing.ABSENT
NOT_APPLICABLE: Literal[Missing.NOT_APPLICABLE] = Missing.NOT_APPLICABLE

Value: TypeAlias = bool | int | float | str | list[str] | None
Operand: TypeAlias = Value | Missing


def both(truths: Iterable[Truth]) -> Truth:
    """Conjunction; true for no members."""
    unknown = False
    for truth in truths:
        if truth is False:
            return False
        unknown = unknown or truth is None
    return None if unknown else True


def either(truths: Iterable[Truth]) -> Truth:
    """Disjunction; false for no members."""
    unknown = False
    for truth in truths:
        if truth is True:
            return True
        unknown = unknown or truth is None
    return None if unknown else False


def negate(truth: Truth) -> Truth:
    return None if truth is None else not truth
