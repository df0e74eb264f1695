"""Texts of rules: Jinja templates over facts, in a sandbox, checked against the catalogue before use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedEnvironment

from autotune.rules import words
from autotune.rules.expression import Facts
from autotune.rules.parse import Catalogue, Flaw
from autotune.rules.problems import did_you_mean
from autotune.rules.truth import ABSENT, NOT_APPLICABLE

MAX_TEXT = 4_000  # characters of one template
MAX_RENDERED = 20_000  # characters of what becomes of it
_MAX_LOOPS = 2  # one inside the other
# Jinja's own filters that say the same every time and make no long text of a short one.
_FILTERS = (
    *("abs", "capitalize", "d", "default", "e", "escape", "first", "float", "int", "last", "length"),
    *("list", "lower", "max", "min", "reject", "reverse", "round", "select", "sort", "string", "sum"),
    *("title", "trim", "truncate", "unique", "upper", "wordcount"),
)
_WIDE = re.compile(r"\d{3}|\*")
_HARMLESS = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.If,
    nodes.For,
    nodes.Literal,
    nodes.BinExpr,
    nodes.UnaryExpr,
    nodes.Compare,
    nodes.Operand,
    nodes.CondExpr,
    nodes.Concat,
    nodes.Pair,
    nodes.Keyword,
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
    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%", "**"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise SecurityError(f"'{operator}' works on numbers only; '~' joins texts")
        return super().call_binop(context, operator, left, right)


def _format(pattern: str, *values: object) -> str:
    """As Jinja's own, for numbers that a sentence can hold."""
    if _WIDE.search(pattern):
        raise SecurityError(f"'{pattern}' is wider than a text")
    return pattern % values


def _join(parts: Iterable[object], between: str = "") -> str:
    """As Jinja's own, no longer than a text."""
    texts = [str(part) for part in parts]
    if sum(map(len, texts)) + len(str(between)) * len(texts) > MAX_RENDERED:
        raise SecurityError(f"a text has at most {MAX_RENDERED:,} characters")
    return str(between).join(texts)


@cache
def _environment() -> _Environment:
    environment = _Environment(undefined=StrictUndefined, autoescape=False)
    environment.globals = {}
    environment.filters = {name: environment.filters[name] for name in _FILTERS}
    environment.filters.update(words.FILTERS)
    environment.filters.update({"format": _format, "join": _join})
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
    parts: list[str] = []
    length = 0
    try:
        for part in _compiled(text).generate(context):
            parts.append(part)
            length += len(part)
            if length > MAX_RENDERED:
                raise SecurityError(f"a text has at most {MAX_RENDERED:,} characters")
    except (TemplateError, ArithmeticError, TypeError, ValueError, LookupError, AttributeError) as error:
        raise TemplateFault(f"{type(error).__name__}: {error}") from error
    except (MemoryError, RecursionError) as error:
        raise TemplateFault("the text is too large") from error
    return "".join(parts).strip()


@cache
def _compiled(text: str) -> Any:
    return _environment().from_string(text)


def check(text: str, catalogue: Catalogue) -> tuple[list[str], list[Flaw]]:
    """Names of the facts a text reads, and what is wrong with it."""
    if not is_template(text):
        return [], []
    if len(text) > MAX_TEXT:
        return [], [Flaw(0, f"the text is longer than {MAX_TEXT} characters")]
    try:
        tree = _environment().parse(text)
    except TemplateSyntaxError as error:
        return [], [Flaw(_place(text, error.lineno, ""), f"the template does not parse: {error.message}")]
    except RecursionError:
        return [], [Flaw(0, "the template is nested too deeply")]
    return _check_tree(tree, text, catalogue)


def _place(text: str, line: int, word: str) -> int:
    """Offset of a word in a line of the text (from 1); of the line's first letter where it is not there."""
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    end = text.find("\n", start)
    here = text[start : end if end >= 0 else len(text)]
    before = "" if word.startswith(".") else r"(?<![\w.])"
    found = re.search(rf"{before}{re.escape(word)}(?!\w)", here) if word else None
    return start + (found.start() if found else len(here) - len(here.lstrip()))


def _check_tree(tree: nodes.Template, text: str, catalogue: Catalogue) -> tuple[list[str], list[Flaw]]:
    flaws: dict[Flaw, None] = {}
    facts: list[str] = []
    environment = _environment()
    groups = groups_of(catalogue)
    read: dict[str, int] = {}  # name -> line
    declared = {"tables", "loop"}
    parts: list[nodes.Getattr | nodes.Getitem] = []
    todo: list[nodes.Node] = [tree]

    def flaw(line: int, word: str, message: str) -> None:
        flaws[Flaw(_place(text, line, word), message)] = None

    while todo:
        node = todo.pop()
        todo.extend(node.iter_child_nodes())
        if isinstance(node, nodes.Name):
            if node.ctx == "load":
                read.setdefault(node.name, node.lineno)
            else:
                declared.add(node.name)
        elif isinstance(node, nodes.Getattr):
            if isinstance(node.node, nodes.Name) and node.node.name in groups:
                fact = f"{node.node.name}.{node.attr}"
                facts.append(fact)
                if fact not in catalogue:
                    hint = did_you_mean(fact, catalogue)
                    flaw(node.lineno, fact, f"unknown fact '{fact}' in the template{hint}")
            else:
                parts.append(node)
        elif isinstance(node, nodes.Getitem):
            parts.append(node)
        elif isinstance(node, nodes.Filter):
            if node.name not in environment.filters:
                hint = did_you_mean(node.name, environment.filters)
                flaw(node.lineno, node.name, f"unknown filter '{node.name}'{hint}")
        elif isinstance(node, nodes.Test):
            if node.name not in environment.tests:
                flaw(node.lineno, node.name, f"unknown test '{node.name}'")
        elif isinstance(node, nodes.For) and _loops(node) > _MAX_LOOPS:
            flaw(node.lineno, "for", f"more than {_MAX_LOOPS} loops stand one inside the other")
        elif not isinstance(node, _HARMLESS):
            message = "templates use facts, filters, if and for; no calls, no set and no other files"
            flaw(node.lineno, "", message)
    for part in parts:  # attributes of loop, entries of tables and of a list are harmless
        if not isinstance(part.node, nodes.Name) or part.node.name in groups:
            word = f".{part.attr}" if isinstance(part, nodes.Getattr) else ""
            flaw(part.lineno, word, "a fact is written group.name and has no parts")
    for name, line in read.items():
        if name not in groups and name not in declared:
            flaw(line, name, f"unknown name '{name}' in the template{did_you_mean(name, groups)}")
    return facts, sorted(flaws, key=lambda found: found.offset)


_groups: list[tuple[Catalogue, dict[str, None]]] = []  # of the catalogue that was asked for last


def groups_of(catalogue: Catalogue) -> dict[str, None]:
    """The first parts of the facts' names."""
    if not _groups or _groups[0][0] is not catalogue:
        _groups[:] = [(catalogue, dict.fromkeys(name.split(".", 1)[0] for name in catalogue))]
    return _groups[0][1]


def _loops(node: nodes.Node) -> int:
    """How many loops stand one inside the other, this one counted."""
    inner = max((_loops(child) for child in node.iter_child_nodes()), default=0)
    return inner + isinstance(node, nodes.For)
