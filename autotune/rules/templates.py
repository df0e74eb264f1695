"""Texts of rules: Jinja templates over facts, in a sandbox, checked against the catalogue before use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedEnvironment

from autotune.rules import words
from autotune.rules.expression import Facts
from autotune.rules.parse import Catalogue
from autotune.rules.problems import did_you_mean
from autotune.rules.truth import ABSENT, NOT_APPLICABLE

MAX_TEXT = 4_000  # characters of one template
_MAX_LOOPS = 2  # one inside the other
# Jinja's own filters without those that make a long text of a short one: a width of 999999999 is no text.
_TOO_LONG = ("batch", "center", "indent", "pprint", "slice", "tojson", "urlize", "wordwrap", "xmlattr")
_WIDE = re.compile(r"\d{3}|\*")
_HARMLESS = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.If,
    nodes.For,
    nodes.Assign,
    nodes.Literal,
    nodes.BinExpr,
    nodes.UnaryExpr,
    nodes.Compare,
    nodes.Operand,
    nodes.CondExpr,
    nodes.Concat,
    nodes.Pair,
    nodes.Keyword,
    nodes.Getitem,
    nodes.Slice,
)


class UnknownFact:
    """An absent or not applicable fact inside a text: prints as a word, is false in a test."""

    __slots__ = ("_word",)

    def __init__(self, word: str) -> None:
        self._word = word

    def __str__(self) -> str:
        return self._word

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return hash(self._word)

    def _never(self, other: object) -> bool:
        return False

    __lt__ = __le__ = __gt__ = __ge__ = _never

    def __iter__(self) -> Iterator[object]:
        return iter(())


class _Group:
    """Facts of one group as attributes."""

    __slots__ = ("_facts", "_name")

    def __init__(self, name: str, facts: Facts) -> None:
        self._name = name
        self._facts = facts

    def __getattr__(self, attribute: str) -> object:
        value = self._facts.get(f"{self._name}.{attribute}", ABSENT)
        if value is ABSENT:
            return UnknownFact("unknown")
        return UnknownFact("none") if value is NOT_APPLICABLE else value


class _Environment(SandboxedEnvironment):
    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise SecurityError(f"'{operator}' multiplies numbers only")
        return super().call_binop(context, operator, left, right)


def _format(pattern: str, *values: object) -> str:
    """As Jinja's own, for numbers that a sentence can hold."""
    if _WIDE.search(pattern):
        raise SecurityError(f"'{pattern}' is wider than a text")
    return pattern % values


@cache
def _environment() -> _Environment:
    environment = _Environment(undefined=StrictUndefined, autoescape=False)
    environment.globals = {}
    for name in _TOO_LONG:
        environment.filters.pop(name, None)
    environment.filters.update(words.FILTERS)
    environment.filters["format"] = _format
    environment.tests["known"] = lambda value: not isinstance(value, UnknownFact)
    return environment


def is_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


class TemplateFault(Exception):
    """A text cannot be rendered."""


def render(text: str, facts: Facts, groups: Mapping[str, None], tables: Mapping[str, object]) -> str:
    """The text with its facts filled in. Raises TemplateFault."""
    if not is_template(text):
        return text.strip()
    context: dict[str, object] = {name: _Group(name, facts) for name in groups}
    context["tables"] = tables
    try:
        return str(_compiled(text).render(context)).strip()
    except (TemplateError, ArithmeticError, TypeError, ValueError, LookupError, AttributeError) as error:
        raise TemplateFault(f"{type(error).__name__}: {error}") from error


@cache
def _compiled(text: str) -> Any:
    return _environment().from_string(text)


def check(text: str, catalogue: Catalogue) -> tuple[list[str], list[str]]:
    """Names of the facts a text reads, and what is wrong with it."""
    if not is_template(text):
        return [], []
    if len(text) > MAX_TEXT:
        return [], [f"the text is longer than {MAX_TEXT} characters"]
    try:
        tree = _environment().parse(text)
    except TemplateSyntaxError as error:
        return [], [f"the template does not parse: {error.message} (line {error.lineno} of the text)"]
    except RecursionError:
        return [], ["the template is nested too deeply"]
    return _check_tree(tree, catalogue)


def _check_tree(tree: nodes.Template, catalogue: Catalogue) -> tuple[list[str], list[str]]:
    faults: list[str] = []
    facts: list[str] = []
    environment = _environment()
    groups = dict.fromkeys(name.split(".", 1)[0] for name in catalogue)
    read: dict[str, None] = {}
    declared = {"tables", "loop"}
    todo: list[nodes.Node] = [tree]
    while todo:
        node = todo.pop()
        todo.extend(node.iter_child_nodes())
        if isinstance(node, nodes.Name):
            if node.ctx == "load":
                read[node.name] = None
            else:
                declared.add(node.name)
        elif isinstance(node, nodes.Getattr):
            if isinstance(node.node, nodes.Name) and node.node.name in groups:
                fact = f"{node.node.name}.{node.attr}"
                facts.append(fact)
                if fact not in catalogue:
                    faults.append(f"unknown fact '{fact}' in the template{did_you_mean(fact, catalogue)}")
        elif isinstance(node, nodes.Filter):
            if node.name not in environment.filters:
                hint = did_you_mean(node.name, environment.filters)
                faults.append(f"unknown filter '{node.name}'{hint}")
        elif isinstance(node, nodes.Test):
            if node.name not in environment.tests:
                faults.append(f"unknown test '{node.name}'")
        elif isinstance(node, nodes.For) and _loops(node) > _MAX_LOOPS:
            faults.append(f"more than {_MAX_LOOPS} loops stand one inside the other")
        elif not isinstance(node, _HARMLESS):
            faults.append("templates use facts, filters, if and for; no calls and no other files")
    for name in read:
        if name not in groups and name not in declared:
            faults.append(f"unknown name '{name}' in the template{did_you_mean(name, groups)}")
    return facts, faults


def _loops(node: nodes.Node) -> int:
    """How many loops stand one inside the other, this one counted."""
    inner = max((_loops(child) for child in node.iter_child_nodes()), default=0)
    return inner + isinstance(node, nodes.For)
