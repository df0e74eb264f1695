"""YAML with positions: plain data for validation, and the place of every node for messages."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from autotune.rules.problems import Problem

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_NODES = 20_000
_MAX_TEXT = 200_000  # characters
# Characters that move the cursor, colour the terminal or turn the direction of what follows.
_FORBIDDEN = re.compile(
    r"[^\t\n\r\x20-\x7e\xa0-\u200d\u2010-\u2027\u202f-\u2065\u206a-\ufeef\uff00-\U0010ffff]"
)
_PLAIN_TAGS = ("str", "null", "bool", "int", "float", "timestamp", "merge", "value", "seq", "map")
_SWITCH_WORDS = {"on", "off", "yes", "no", "y", "n"}


@dataclass
class SourceFile:
    """One YAML file: its text, its data, and the problems found on the way."""

    path: str  # as shown in messages
    text: str
    root: yaml.Node | None = None
    data: Any = None
    problems: list[Problem] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)

    def line(self, number: int) -> str:
        """A source line, counted from 1."""
        if not self._lines:
            self._lines = self.text.split("\n")
        return self._lines[number - 1].rstrip("\r") if 0 < number <= len(self._lines) else ""

    def problem(self, line: int, column: int, message: str, *, warning: bool = False) -> Problem:
        """A problem at a place; line and column from 1."""
        level: Any = "warning" if warning else "error"
        return Problem(self.path, line, column, message, level, self.line(line))

    def at(
        self, location: tuple[int | str, ...], message: str, *, offset: int | None = None, key: bool = False
    ) -> Problem:
        """An error at a place of the data, e.g. ("fix", 0, "surface"); `offset` counts within its text."""
        node = self.node(location, key=key)
        if node is None:
            return self.problem(1, 1, message)
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        if offset is not None and isinstance(node, yaml.ScalarNode) and (offset or node.style in ("|", ">")):
            line, column = self._inside(node, offset)
        return self.problem(line, column, message)

    def node(self, location: tuple[int | str, ...], *, key: bool = False) -> yaml.Node | None:
        """The node at a place; the deepest one that exists. With `key` the key's own node at the end."""
        node = self.root
        for depth, part in enumerate(location):
            if isinstance(node, yaml.MappingNode):
                found = next((pair for pair in node.value if pair[0].value == part), None)
                if found is None:
                    continue
                node = found[0] if key and depth == len(location) - 1 else found[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
        return node

    def rest_of_line(self, node: yaml.Node) -> str:
        """What follows a node on its last line."""
        return self.line(node.end_mark.line + 1)[node.end_mark.column :]

    def _inside(self, node: yaml.ScalarNode, offset: int) -> tuple[int, int]:
        """Where a character of a scalar's value stands: both are walked over what is no space."""
        line, column = node.start_mark.line, node.start_mark.column
        if node.style in ("|", ">"):
            line, column = line + 1, 0
        elif node.style in ("'", '"'):
            column += 1
        passed = sum(not c.isspace() for c in node.value[:offset])
        blanks = len(node.value[:offset]) - len(node.value[:offset].rstrip(" "))
        last = node.end_mark.line
        while line <= last:
            text = self.line(line + 1)
            while column < len(text):
                width, visible = _written(text, column, node.style)
                if visible:
                    if passed == 0:
                        return line + 1, column + 1
                    passed -= 1
                column += width
            line, column = line + 1, 0
        end = self.line(last + 1)
        return last + 1, min(len(end), node.end_mark.column + blanks) + 1


def _written(text: str, at: int, style: str | None) -> tuple[int, bool]:
    """Characters that one character of a value takes in the file, and whether it is no space."""
    if style == "'" and text.startswith("''", at):
        return 2, True
    if style == '"' and text[at] == "\\":
        code = text[at + 1 : at + 2]
        return {"x": 4, "u": 6, "U": 10}.get(code, 2), code not in (
            "",
            "n",
            "t",
            "r",
            " ",
            "N",
            "L",
            "P",
            "_",
        )
    return 1, not text[at].isspace()


def read_yaml(path: str, text: str) -> SourceFile:
    """Parse one file; faults are collected in `problems`, never raised."""
    source = SourceFile(path, text)
    if len(text) > _MAX_TEXT:
        what = f"the file is too large for a rule ({len(text):,} characters)"
        source.problems.append(source.problem(1, 1, what))
        return source
    try:
        source.root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        source.problems.append(_syntax_problem(source, error))
        return source
    except (RecursionError, ValueError, MemoryError) as error:
        source.problems.append(source.problem(1, 1, f"this is not YAML ({type(error).__name__})"))
        return source
    if source.root is None:
        source.problems.append(source.problem(1, 1, "the file is empty"))
        return source
    source.data = _Builder(source).build(source.root, 0)
    return source


def _syntax_problem(source: SourceFile, error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    if mark is None and (odd := _FORBIDDEN.search(source.text)) is not None:
        before = source.text[: odd.start()]
        return source.problem(before.count("\n") + 1, odd.start() - before.rfind("\n"), _invisible(odd[0]))
    what = str(getattr(error, "problem", None) or error).split("\n")[0]
    text = source.line(line)
    if "\t" in text[: len(text) - len(text.lstrip())] or "'\\t'" in what:
        what = "tabs cannot indent YAML, use spaces"
    elif what.startswith("mapping values are not allowed"):
        what = "a ':' inside a plain text starts a mapping; put the text in quotes"
    elif text.lstrip().removeprefix("- ")[:1] in tuple("!&*@`%|>"):
        first = text.lstrip().removeprefix("- ")[:1]
        what = f"'{first}' at the start of a text has a meaning of its own in YAML; put the text in quotes"
    return source.problem(line, column, what)


def _invisible(character: str) -> str:
    return f"the invisible character U+{ord(character):04X} has no place in a rule"


class _Builder:
    """Plain data out of nodes: no tags, no aliases, no duplicate keys."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.seen: set[int] = set()
        self.plain = "\\" not in source.text and not _FORBIDDEN.search(source.text)

    def fault(self, node: yaml.Node, message: str) -> None:
        mark = node.start_mark
        self.source.problems.append(self.source.problem(mark.line + 1, mark.column + 1, message))

    def build(self, node: yaml.Node, depth: int) -> Any:
        if id(node) in self.seen:
            self.fault(node, "anchors and aliases are not used in rules")
            return None
        self.seen.add(id(node))
        if depth > 30 or len(self.seen) > _MAX_NODES:
            self.fault(node, "the file is nested too deeply or too large for a rule")
            return None
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(child, depth + 1) for child in node.value]
        return self.mapping(node, depth)

    def mapping(self, node: yaml.Node, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self.fault(key_node, "a key must be a plain word")
                continue
            if not self.plain:
                self.visible(key_node)
            if key_node.value in result:
                self.fault(key_node, f"the key '{key_node.value}' stands here twice")
                continue
            result[key_node.value] = self.build(value_node, depth + 1)
        return result

    def visible(self, node: yaml.ScalarNode) -> None:
        odd = _FORBIDDEN.search(node.value) or ("\r" in node.value and re.search("\r", node.value))
        if odd:
            self.fault(node, _invisible(odd[0]))

    def scalar(self, node: yaml.ScalarNode) -> Any:
        tag, text = node.tag, node.value
        if not self.plain:
            self.visible(node)
        try:
            if tag.endswith(":null"):
                return None
            if tag.endswith(":bool"):
                if text.lower() in _SWITCH_WORDS:
                    self.fault(
                        node, f"YAML reads a bare '{text}' as true or false; quote it or write true/false"
                    )
                return text.lower() in ("true", "on", "yes", "y")
            if tag.endswith(":int"):
                return int(text.replace("_", ""), 0) if text[:1] != "0" or len(text) == 1 else text
            if tag.endswith(":float"):
                return float(text.replace("_", ""))
        except (ValueError, OverflowError):
            return text
        if tag.removeprefix("tag:yaml.org,2002:") not in _PLAIN_TAGS:
            self.fault(node, f"'!' starts a tag in YAML ({tag}); put the text in quotes")
        return text
