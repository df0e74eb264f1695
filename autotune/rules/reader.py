"""Reads Python syntax as a rule's expression, with the type and unit of every part."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from autotune.rules.expression import (
    Arithmetic,
    ArithmeticOperator,
    Compare,
    CompareOperator,
    FactRef,
    Known,
    Literal_,
    Logic,
    Node,
)
from autotune.rules.problems import did_you_mean


class CatalogueEntry(Protocol):
    """What rules need to know of a fact."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def meaning(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def decided_by(self) -> str: ...
    @property
    def choices(self) -> tuple[str, ...]: ...


Catalogue: TypeAlias = Mapping[str, CatalogueEntry]
Kind = Literal["bool", "number", "str", "list", "none"]


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something wrong in an expression; the offset is in characters from its start."""

    offset: int
    message: str
    level: Literal["error", "warning"] = "error"


@dataclass(frozen=True, slots=True)
class Typed:
    """A node with its type and, for numbers, its unit (empty: none known)."""

    node: Node
    kind: Kind
    unit: str = ""
    choices: tuple[str, ...] = ()


class Stop(Exception):
    """The expression cannot be understood from here on."""

    def __init__(self, at: ast.AST | int, message: str) -> None:
        super().__init__(message)
        self.at = at
        self.message = message


_COMPARE: dict[type[ast.cmpop], CompareOperator] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}
_ARITHMETIC: dict[type[ast.operator], ArithmeticOperator] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
}
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "none": None}
WORDS: dict[Kind, str] = {
    "bool": "true or false",
    "number": "a number",
    "str": "a string",
    "list": "a list",
    "none": "none",
}
_SHARES = ("frac", "ratio")


def offset_of(source: str, node: ast.AST) -> int:
    column = int(getattr(node, "col_offset", 0))
    return len(source.encode("utf-8")[:column].decode("utf-8", errors="replace"))


class Reader:
    def __init__(self, source: str, catalogue: Catalogue) -> None:
        self.source = source
        self._bytes = source.encode("utf-8")  # the interpreter counts columns in bytes
        self.catalogue = catalogue
        self.flaws: list[Flaw] = []

    def text(self, node: ast.expr) -> str:
        return self._bytes[node.col_offset : node.end_col_offset].decode("utf-8", errors="replace")

    def flaw(self, node: ast.AST, message: str, level: Literal["error", "warning"] = "error") -> None:
        self.flaws.append(Flaw(offset_of(self.source, node), message, level))

    def read(self, node: ast.expr) -> Typed:
        match node:
            case ast.Constant():
                return self.constant(node)
            case ast.Name() | ast.Attribute():
                return self.name(node)
            case ast.List() | ast.Tuple():
                return self.list_(node)
            case ast.BoolOp():
                parts = tuple(self.condition(value).node for value in node.values)
                kind: Literal["and", "or"] = "and" if isinstance(node.op, ast.And) else "or"
                return Typed(Logic(kind, parts, self.text(node)), "bool")
            case ast.UnaryOp(op=ast.Not()):
                inner = self.condition(node.operand)
                return Typed(Logic("not", (inner.node,), self.text(node)), "bool")
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                return self.signed(node)
            case ast.BinOp():
                return self.arithmetic(node)
            case ast.Compare():
                return self.compare(node)
            case ast.Call():
                return self.smallest_or_largest(node)
        raise Stop(node, f"{_describe(node)} cannot be used in an expression")

    def constant(self, node: ast.Constant) -> Typed:
        value = node.value
        if value is None or isinstance(value, bool | str):
            kind: Kind = "none" if value is None else "bool" if isinstance(value, bool) else "str"
            return Typed(Literal_(value, self.text(node)), kind)
        if isinstance(value, int | float):
            if not abs(value) < 1e18:
                raise Stop(node, "the number is out of range")
            return Typed(Literal_(value, self.text(node)), "number")
        raise Stop(node, "only numbers, strings, true, false and none can be written here")

    def name(self, node: ast.Name | ast.Attribute) -> Typed:
        name = _dotted(node)
        if name is None:
            raise Stop(node, "a fact is written group.name")
        if name in _CONSTANTS:
            constant = _CONSTANTS[name]
            return Typed(Literal_(constant, name), "none" if constant is None else "bool")
        entry = self.catalogue.get(name)
        if entry is None:
            raise Stop(node, f"unknown fact '{name}'{did_you_mean(name, self.catalogue)}")
        kind: Kind
        if entry.type in ("int", "float"):
            kind = "number"
        else:
            kind = "bool" if entry.type == "bool" else "list" if entry.type == "list" else "str"
        return Typed(FactRef(name, name), kind, entry.unit, entry.choices)

    def list_(self, node: ast.List | ast.Tuple) -> Typed:
        items: list[str] = []
        for element in node.elts:
            item = self.read(element)
            if item.kind != "str" or not isinstance(item.node, Literal_):
                raise Stop(element, "a list holds strings only")
            items.append(str(item.node.value))
        return Typed(Literal_(items, self.text(node)), "list")

    def condition(self, node: ast.expr) -> Typed:
        typed = self.read(node)
        if typed.kind != "bool":
            what = self.text(node)
            self.flaw(node, f"'{what}' is {WORDS[typed.kind]}, not true or false; compare it with something")
        return typed

    def number(self, node: ast.expr) -> Typed:
        typed = self.read(node)
        if typed.kind != "number":
            raise Stop(node, f"'{self.text(node)}' is {WORDS[typed.kind]}, not a number")
        return typed

    def signed(self, node: ast.UnaryOp) -> Typed:
        inner = self.number(node.operand)
        if isinstance(node.op, ast.UAdd):
            return inner
        if isinstance(inner.node, Literal_) and isinstance(inner.node.value, int | float):
            return Typed(Literal_(-inner.node.value, self.text(node)), "number")
        zero = Literal_(0, "0")
        return Typed(Arithmetic("-", zero, inner.node, self.text(node)), "number", inner.unit)

    def arithmetic(self, node: ast.BinOp) -> Typed:
        symbol = _ARITHMETIC.get(type(node.op))
        if symbol is None:
            raise Stop(node, "only + - * / are known")
        left, right = self.number(node.left), self.number(node.right)
        if symbol in ("+", "-"):
            unit = self.same_unit(node, left, right)
        elif symbol == "*":
            unit = _times(left.unit, right.unit)
        else:
            unit = _over(left.unit, right.unit)
        return Typed(Arithmetic(symbol, left.node, right.node, self.text(node)), "number", unit)

    def smallest_or_largest(self, node: ast.Call) -> Typed:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in ("min", "max") or len(node.args) < 2 or node.keywords:
            raise Stop(node, "there are no calls here except min(a, b) and max(a, b)")
        which: Literal["min", "max"] = "min" if name == "min" else "max"
        result = self.number(node.args[0])
        for argument in node.args[1:]:
            other = self.number(argument)
            unit = self.same_unit(argument, result, other)
            result = Typed(Arithmetic(which, result.node, other.node, self.text(node)), "number", unit)
        return result

    def same_unit(self, node: ast.AST, left: Typed, right: Typed) -> str:
        first, second = left.unit, right.unit
        if first and second and first != second and not (first in _SHARES and second in _SHARES):
            self.flaw(node, f"units differ: {first} and {second}")
        return first or second

    def compare(self, node: ast.Compare) -> Typed:
        parts: list[Node] = []
        left_node = node.left
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            parts.append(self.comparison(left_node, op, right_node, node))
            left_node = right_node
        if len(parts) == 1:
            return Typed(parts[0], "bool")
        return Typed(Logic("and", tuple(parts), self.text(node)), "bool")

    def comparison(
        self, left_node: ast.expr, op: ast.cmpop, right_node: ast.expr, whole: ast.Compare
    ) -> Node:
        text = self.text(whole)
        if isinstance(op, ast.Is | ast.IsNot):
            return self.is_known(left_node, isinstance(op, ast.IsNot), right_node, text)
        symbol = _COMPARE[type(op)]
        left, right = self.read(left_node), self.read(right_node)
        if "none" in (left.kind, right.kind):
            if symbol not in ("==", "!="):
                raise Stop(whole, "none can only be compared with == or !=")
        elif symbol in ("in", "not in"):
            if right.kind == "str":
                raise Stop(right_node, 'substrings are not searched; write a list: x in ["a", "b"]')
            if right.kind != "list" or left.kind != "str":
                raise Stop(whole, "'in' needs a string on the left and a list on the right")
        elif left.kind != right.kind:
            raise Stop(
                whole, f"{WORDS[left.kind]} is compared with {WORDS[right.kind]}, which is never equal"
            )
        elif symbol not in ("==", "!=") and left.kind != "number":
            raise Stop(whole, f"'{symbol}' compares numbers, not {WORDS[left.kind]}")
        self.check_units(whole, left, right)
        self.check_choices(left, right_node, right)
        self.check_choices(right, left_node, left)
        return Compare(symbol, left.node, right.node, text)

    def is_known(self, left_node: ast.expr, negated: bool, right_node: ast.expr, text: str) -> Node:
        word = _dotted(right_node) if isinstance(right_node, ast.Name) else None
        left = self.read(left_node)
        if word == "known" and isinstance(left.node, FactRef):
            return Known(left.node, negated, text)
        none = word == "none" or (isinstance(right_node, ast.Constant) and right_node.value is None)
        if none and isinstance(left.node, FactRef):
            return Compare("!=" if negated else "==", left.node, Literal_(None, "none"), text)
        raise Stop(right_node, "after 'is' only 'known' and 'none' can stand, with a fact before it")

    def check_units(self, whole: ast.Compare, left: Typed, right: Typed) -> None:
        if left.kind != "number" or right.kind != "number":
            return
        self.same_unit(whole, left, right)
        for typed, other in ((left, right), (right, left)):
            value = other.node.value if isinstance(other.node, Literal_) else None
            if typed.unit == "frac" and isinstance(value, int | float) and not 0 <= value <= 1:
                self.flaw(whole, f"a fraction lies between 0 and 1, it is compared with {value}", "warning")

    def check_choices(self, fact: Typed, other_node: ast.expr, other: Typed) -> None:
        if not fact.choices or not isinstance(other.node, Literal_):
            return
        nodes: Sequence[ast.expr] = (
            other_node.elts if isinstance(other_node, ast.List | ast.Tuple) else [other_node]
        )
        values = other.node.value if isinstance(other.node.value, list) else [other.node.value]
        for node, value in zip(nodes, values, strict=True):
            if isinstance(value, str) and value not in fact.choices:
                known = ", ".join(fact.choices)
                self.flaw(node, f"'{value}' is not one of {known}{did_you_mean(value, fact.choices)}")


def _dotted(node: ast.expr) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def _times(first: str, second: str) -> str:
    if "count" in (first, second):  # a number of things times anything: the unit is the writer's business
        return ""
    if not first or first in _SHARES:
        return second or first
    return first if not second or second in _SHARES else ""


def _over(first: str, second: str) -> str:
    if first and first == second:
        return "ratio"
    return first if not second or second in _SHARES else ""


def _describe(node: ast.expr) -> str:
    names = {
        "Subscript": "an index",
        "Lambda": "a function",
        "IfExp": "if ... else",
        "JoinedStr": "a format string",
        "ListComp": "a comprehension",
        "GeneratorExp": "a comprehension",
        "Dict": "a mapping",
        "Set": "a set",
        "NamedExpr": "an assignment",
        "Starred": "a star",
    }
    return names.get(type(node).__name__, f"'{type(node).__name__.lower()}'")
