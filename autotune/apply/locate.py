"""Find the one call node that a recorded site points at.

Code objects count columns in UTF-8 bytes, libcst in characters; a span fits exactly one call, or the edit
is refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from autotune.records.sites import Site, Span

# The callee of these sites is an object the user made, so its name says nothing about the class.
_INSTANCE_KINDS = frozenset({"model_call"})
_SPACE = (cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace, cst.EmptyLine, cst.Newline)
_SPECIAL = frozenset({"__init__", "__new__", "__call__", "forward", "__post_init__"})


class EditRefused(Exception):
    """An edit that cannot be made safely; the text is the reason."""


@dataclass(frozen=True)
class Source:
    """One parsed source text."""

    text: str
    module: cst.Module
    parents: Mapping[cst.CSTNode, cst.CSTNode]
    calls: dict[tuple[int, int, int, int], cst.Call]  # line, column, end line, end column in characters
    lines: list[str]
    aliases: dict[str, set[str]]  # local name -> last names it may stand for


@functools.lru_cache(maxsize=16)
def parse(text: str) -> Source:
    """Parse a source text. Raises EditRefused when it is not valid Python.

    A plan tries many edits on the same few files; the trees are immutable, so they are kept.
    """
    try:
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    except cst.ParserSyntaxError as fault:
        raise EditRefused(f"the file cannot be parsed: {fault.message}") from None
    if wrapper.module.code != text:  # a form feed in front of a statement is lost by the parser
        raise EditRefused("the file cannot be parsed without losing characters of it")
    positions = wrapper.resolve(PositionProvider)
    parents: dict[cst.CSTNode, cst.CSTNode] = {}
    calls: dict[tuple[int, int, int, int], cst.Call] = {}
    aliases = _Aliases()
    for parent, node in _walk(wrapper.module):
        parents[node] = parent
        if isinstance(node, cst.Call):
            at = positions[node]
            calls[at.start.line, at.start.column, at.end.line, at.end.column] = node
        else:
            aliases.look(node)
    # Python's own line ends: str.splitlines would split at form feeds and at line separators in strings, too.
    return Source(text, wrapper.module, parents, calls, re.split(r"\r\n|\r|\n", text), aliases.found)


def _walk(root: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """(parent, node) of every node below `root` that is no white space; a visitor takes ten times as long."""
    stack = [root]
    while stack:
        node = stack.pop()
        for name in node.__dataclass_fields__:
            value = getattr(node, name)
            for child in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(child, cst.CSTNode) and not isinstance(child, _SPACE):
                    yield node, child
                    stack.append(child)


def find_call(source: Source, site: Site) -> cst.Call:
    """The call node of `site`. Raises EditRefused with the reason when there is not exactly one."""
    if site.span is None:
        return _by_line(source, site)
    key = _characters(source.lines, site.span)
    node = source.calls.get(key) if key else None
    if node is None:
        raise EditRefused("no call stands at the recorded place")
    check_name(source, node, site)
    return node


def check_name(source: Source, node: cst.Call, site: Site) -> None:
    """Raise EditRefused unless the call itself is what was recorded, and not a road to it through a library.

    The observer knows whether user code made the call (`editable`, `detail["direct"]`); the written name is
    looked at where it knows nothing, as a plain name may be an alias.
    """
    written = last_name(node.func)
    shown = f"{written}(...)" if written else code(node.func)
    if site.detail.get("direct") is False:
        raise EditRefused(f"the call there is {shown}, which only leads to {site.callee}")
    if not site.editable:
        raise EditRefused("the file is not part of the project")
    expected = callee_names(site.callee)
    if site.kind in _INSTANCE_KINDS or written is None or "written" in site.detail or written in expected:
        return
    if written in _SPECIAL or expected & source.aliases.get(written, set()):
        return
    raise EditRefused(f"the call there is {shown}, which only leads to {site.callee}")


def callee_names(callee: str) -> set[str]:
    """Names a call of `callee` may be written with: the last name, or the class of a special method."""
    parts = [part for part in callee.split(".") if part and part != "<locals>"]
    while len(parts) > 1 and parts[-1] in _SPECIAL:
        parts.pop()
    return {parts[-1]} if parts else set()


def last_name(node: cst.BaseExpression) -> str | None:
    """`c` of `a.b.c` or of `c`; None for anything computed."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    if isinstance(node, cst.Name):
        return node.value
    return None


def code(node: cst.CSTNode) -> str:
    """The node as source text."""
    return cst.Module(body=[]).code_for_node(node).strip()


def _by_line(source: Source, site: Site) -> cst.Call:
    expected = callee_names(site.callee)
    hits = [
        node
        for (line, _, end_line, _), node in source.calls.items()
        if line <= site.line <= end_line and last_name(node.func) in expected
    ]
    if len(hits) != 1:
        raise EditRefused(
            f"the interpreter gave no column and {len(hits) or 'no'} fitting calls stand on line {site.line}"
        )
    return hits[0]


def _characters(lines: list[str], span: Span) -> tuple[int, int, int, int] | None:
    try:
        start = _column(lines[span.line - 1], span.byte_column)
        end = _column(lines[span.end_line - 1], span.end_byte_column)
    except (IndexError, UnicodeDecodeError):
        return None
    return span.line, start, span.end_line, end


def _column(line: str, byte_column: int) -> int:
    return len(line.encode("utf-8")[:byte_column].decode("utf-8"))


class _Aliases:
    """Local names that stand for another: `import a as b`, `b = m.a`, `b = partial(a, ...)`, `class b(a)`."""

    def __init__(self) -> None:
        self.found: dict[str, set[str]] = {}

    def look(self, node: cst.CSTNode) -> None:
        """Take over what one node says."""
        if isinstance(node, cst.ImportAlias):
            if node.asname is not None and isinstance(node.asname.name, cst.Name):
                self._add(node.asname.name.value, last_name(node.name))
        elif isinstance(node, cst.ClassDef):
            for base in node.bases:
                self._add(node.name.value, last_name(base.value))
        elif isinstance(node, cst.Assign):
            for target in node.targets:
                name = last_name(target.target)
                if name is not None:
                    self._add_value(name, node.value)

    def _add(self, alias: str, target: str | None) -> None:
        if target is not None and target != alias:
            self.found.setdefault(alias, set()).add(target)

    def _add_value(self, name: str, value: cst.BaseExpression) -> None:
        if isinstance(value, cst.IfExp):
            self._add_value(name, value.body)
            self._add_value(name, value.orelse)
        elif isinstance(value, cst.Call) and last_name(value.func) == "partial" and value.args:
            self._add(name, last_name(value.args[0].value))
        else:
            self._add(name, last_name(value))
