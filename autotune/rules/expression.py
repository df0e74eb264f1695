"""Conditions and arithmetic of rules as a tree that can be evaluated on the facts of a run.

`parse.py` builds these nodes from text. Evaluation never raises: arithmetic without a result (division by
zero, overflow) gives a value that does not apply, so a comparison with it is false.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from autotune.rules.truth import ABSENT, NOT_APPLICABLE, Missing, Operand, Truth, Value, both, either, negate

Facts: TypeAlias = Mapping[str, Operand]  # by catalogue name; a name that is not there is absent

CompareOperator = Literal["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
ArithmeticOperator = Literal["+", "-", "*", "/", "min", "max"]

_COMPARE: dict[str, Callable[[Any, Any], object]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "min": min,
    "max": max,
}


@dataclass(frozen=True, slots=True)
class Literal_:
    """A number, string, boolean, list of them, or none."""

    value: Value
    text: str

    def operand(self, facts: Facts) -> Operand:
        return self.value

    def truth(self, facts: Facts) -> Truth:
        return bool(self.value)

    def children(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class FactRef:
    """The value of a fact; as a condition a boolean one."""

    name: str
    text: str

    def operand(self, facts: Facts) -> Operand:
        return facts.get(self.name, ABSENT)

    def truth(self, facts: Facts) -> Truth:
        value = self.operand(facts)
        if value is ABSENT:
            return None
        return False if value is NOT_APPLICABLE else bool(value)

    def children(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two numbers under + - * / min max."""

    operator: ArithmeticOperator
    left: Node
    right: Node
    text: str

    def operand(self, facts: Facts) -> Operand:
        left, right = self.left.operand(facts), self.right.operand(facts)
        if NOT_APPLICABLE in (left, right):
            return NOT_APPLICABLE
        if ABSENT in (left, right):
            return ABSENT
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            return NOT_APPLICABLE
        try:
            result = _ARITHMETIC[self.operator](left, right)
            return result if math.isfinite(result) else NOT_APPLICABLE
        except ArithmeticError:
            return NOT_APPLICABLE

    def truth(self, facts: Facts) -> Truth:
        value = self.operand(facts)
        return None if value is ABSENT else value is not NOT_APPLICABLE and bool(value)

    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Compare:
    """One comparison."""

    operator: CompareOperator
    left: Node
    right: Node
    text: str

    def operand(self, facts: Facts) -> Operand:
        truth = self.truth(facts)
        return ABSENT if truth is None else truth

    def truth(self, facts: Facts) -> Truth:
        left, right = self.left.operand(facts), self.right.operand(facts)
        if left is None or right is None:  # the literal none stands for "does not apply"
            other = right if left is None else left
            if other is ABSENT:
                return None
            applies_not = other is NOT_APPLICABLE or other is None
            return applies_not if self.operator == "==" else not applies_not
        if isinstance(left, Missing) or isinstance(right, Missing):
            return False if NOT_APPLICABLE in (left, right) else None
        try:
            if self.operator in ("in", "not in"):
                found = isinstance(right, list) and left in right
                return found is (self.operator == "in")
            return bool(_COMPARE[self.operator](left, right))
        except TypeError:  # a recorded value of another type than the catalogue says
            return False

    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Known:
    """`fact is known`: whether it was collected at all (also when it does not apply); never unknown."""

    fact: FactRef
    negated: bool
    text: str

    def operand(self, facts: Facts) -> Operand:
        return self.truth(facts)

    def truth(self, facts: Facts) -> Truth:
        return (self.fact.operand(facts) is not ABSENT) is not self.negated

    def children(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Logic:
    """and, or, not."""

    kind: Literal["and", "or", "not"]
    parts: tuple[Node, ...]
    text: str

    def operand(self, facts: Facts) -> Operand:
        truth = self.truth(facts)
        return ABSENT if truth is None else truth

    def truth(self, facts: Facts) -> Truth:
        if self.kind == "not":
            return negate(self.parts[0].truth(facts))
        truths = (part.truth(facts) for part in self.parts)
        return both(truths) if self.kind == "and" else either(truths)

    def children(self) -> tuple[Node, ...]:
        return self.parts


Node: TypeAlias = Literal_ | FactRef | Arithmetic | Compare | Known | Logic


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    yield node
    if isinstance(node, Known):
        yield node.fact
    for child in node.children():
        yield from walk(child)


def fact_names(node: Node) -> list[str]:
    """Facts the expression reads, in order, once each."""
    return list(dict.fromkeys(part.name for part in walk(node) if isinstance(part, FactRef)))


def undecided_facts(node: Node, facts: Facts) -> list[str]:
    """Absent facts that keep the expression unknown; empty when it is decided."""
    if isinstance(node, Logic):
        if node.truth(facts) is not None:
            return []
        return list(dict.fromkeys(name for part in node.parts for name in undecided_facts(part, facts)))
    if node.truth(facts) is not None:
        return []
    return [name for name in fact_names(node) if facts.get(name, ABSENT) is ABSENT]
