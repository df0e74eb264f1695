"""From the text of a condition to a checked tree: names, types and units are compared with the catalogue.

The grammar is a part of Python's: facts (`group.name`), numbers, strings, true/false/none, lists,
`== != < <= > >= in not in`, `is known`, `and or not`, `+ - * /`, `min max`, parentheses.
"""

from __future__ import annotations

import ast
import warnings
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

MAX_LENGTH = 600  # characters; keeps hostile nesting away from the interpreter's own parser


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


class _Stop(Exception):
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
_WORDS: dict[Kind, str] = {
    "bool": "true or false",
    "number": "a number",
    "str": "a string",
    "list": "a list",
    "none": "none",
}
_SHARES = ("frac", "ratio")
_NOT_PYTHON = {"&&": "and", "||": "or", "!(": "not (", "=>": ">=", "=<": "<=", "<>": "!="}


def parse_condition(text: str, catalogue: Catalogue) -> tuple[Node | None, list[Flaw]]:
    """A condition; None when it has errors."""
    typed, flaws = _parse(text, catalogue)
    if typed is not None and typed.kind != "bool":
        hint = "compare it with something" if typed.kind != "none" else "write a comparison"
        flaws.append(Flaw(0, f"a condition must be true or false, this is {_WORDS[typed.kind]}; {hint}"))
    return _result(typed, flaws)


def parse_number(text: str, catalogue: Catalogue) -> tuple[Node | None, list[Flaw]]:
    """An arithmetic expression; None when it has errors."""
    typed, flaws = _parse(text, catalogue)
    if typed is not None and typed.kind != "number":
        flaws.append(Flaw(0, f"expected a number, this is {_WORDS[typed.kind]}"))
    return _result(typed, flaws)


def _result(typed: Typed | None, flaws: list[Flaw]) -> tuple[Node | None, list[Flaw]]:
    broken = typed is None or any(flaw.level == "error" for flaw in flaws)
    return (None if broken or typed is None else typed.node), flaws


def _parse(text: str, catalogue: Catalogue) -> tuple[Typed | None, list[Flaw]]:
    if not text.strip():
        return None, [Flaw(0, "the expression is empty")]
    if len(text) > MAX_LENGTH:
        return None, [Flaw(0, f"the expression is longer than {MAX_LENGTH} characters; split it")]
    lead = len(text) - len(text.lstrip())
    source = text.strip().replace("\n", " ")
    if "\\" in source:
        return None, [Flaw(lead + source.index("\\"), "a backslash has no place in an expression")]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the interpreter's own advice on odd but legal spelling
            tree = ast.parse(source, mode="eval")
        parser = _Parser(source, catalogue)
        return parser.read(tree.body), [Flaw(f.offset + lead, f.message, f.level) for f in parser.flaws]
    except SyntaxError as error:
        return None, [_syntax_flaw(source, error, lead)]
    except _Stop as stop:
        offset = stop.at if isinstance(stop.at, int) else _offset(source, stop.at)
        kept = [Flaw(f.offset + lead, f.message, f.level) for f in parser.flaws]
        return None, [*kept, Flaw(offset + lead, stop.message)]
    except (RecursionError, MemoryError, ValueError, OverflowError):
        return None, [Flaw(lead, "the expression is too deeply nested or holds a number out of range")]


def _syntax_flaw(source: str, error: SyntaxError, lead: int) -> Flaw:
    for wrong, right in _NOT_PYTHON.items():
        if wrong in source:
            return Flaw(lead + source.index(wrong), f"'{wrong}' is not known here, write '{right}'")
    offset = min(max((error.offset or 1) - 1, 0), max(len(source) - 1, 0))
    if "%" in source:
        return Flaw(lead + source.index("%"), "write shares as fractions: 0.2, not 20%")
    bare = source.replace("==", "").replace("!=", "").replace("<=", "").replace(">=", "")
    if "=" in bare:
        return Flaw(lead + offset, "'=' does not compare, write '=='")
    return Flaw(lead + offset, f"this is not an expression ({error.msg})")


def _offset(source: str, node: ast.AST) -> int:
    column = int(getattr(node, "col_offset", 0))
    return len(source.encode("utf-8")[:column].decode("utf-8", errors="replace"))


class _Parser:
    def __init__(self, source: str, catalogue: Catalogue) -> None:
        self.source = source
        self.catalogue = catalogue
        self.flaws: list[Flaw] = []

    def text(self, node: ast.expr) -> str:
        return ast.get_source_segment(self.source, node) or ""

    def flaw(self, node: ast.AST, message: str, level: Literal["error", "warning"] = "error") -> None:
        self.flaws.append(Flaw(_offset(self.source, node), message, level))

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
        raise _Stop(node, f"{_describe(node)} cannot be used in an expression")

    def constant(self, node: ast.Constant) -> Typed:
        value = node.value
        if value is None or isinstance(value, bool | str):
            kind: Kind = "none" if value is None else "bool" if isinstance(value, bool) else "str"
            return Typed(Literal_(value, self.text(node)), kind)
        if isinstance(value, int | float):
            return Typed(Literal_(value, self.text(node)), "number")
        raise _Stop(node, "only numbers, strings, true, false and none can be written here")

    def name(self, node: ast.Name | ast.Attribute) -> Typed:
        name = _dotted(node)
        if name is None:
            raise _Stop(node, "a fact is written group.name")
        if name in _CONSTANTS:
            constant = _CONSTANTS[name]
            return Typed(Literal_(constant, name), "none" if constant is None else "bool")
        entry = self.catalogue.get(name)
        if entry is None:
            raise _Stop(node, f"unknown fact '{name}'{did_you_mean(name, self.catalogue)}")
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
                raise _Stop(element, "a list holds strings only")
            items.append(str(item.node.value))
        return Typed(Literal_(items, self.text(node)), "list")

    def condition(self, node: ast.expr) -> Typed:
        typed = self.read(node)
        if typed.kind != "bool":
            what = self.text(node)
            self.flaw(node, f"'{what}' is {_WORDS[typed.kind]}, not true or false; compare it with something")
        return typed

    def number(self, node: ast.expr) -> Typed:
        typed = self.read(node)
        if typed.kind != "number":
            raise _Stop(node, f"'{self.text(node)}' is {_WORDS[typed.kind]}, not a number")
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
            raise _Stop(node, "only + - * / are known")
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
            raise _Stop(node, "there are no calls here except min(a, b) and max(a, b)")
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
                raise _Stop(whole, "none can only be compared with == or !=")
        elif symbol in ("in", "not in"):
            if right.kind == "str":
                raise _Stop(right_node, 'substrings are not searched; write a list: x in ["a", "b"]')
            if right.kind != "list" or left.kind != "str":
                raise _Stop(whole, "'in' needs a string on the left and a list on the right")
        elif left.kind != right.kind:
            raise _Stop(
                whole, f"{_WORDS[left.kind]} is compared with {_WORDS[right.kind]}, which is never equal"
            )
        elif symbol not in ("==", "!=") and left.kind != "number":
            raise _Stop(whole, f"'{symbol}' compares numbers, not {_WORDS[left.kind]}")
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
        raise _Stop(right_node, "after 'is' only 'known' and 'none' can stand, with a fact before it")

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
