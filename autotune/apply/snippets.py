"""Rule snippets as statements, and the statements that take a line's place.

Snippets take over the indentation and the line ends of the file they go into.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from autotune.apply.locate import EditRefused

Statement = cst.BaseStatement

REMOVED = "autotune_removed_statement"
HOLE = "AUTOTUNE_HOLE"


@dataclass
class LinePlan:
    """What happens to one small statement of a line."""

    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    wrap: list[str] = field(default_factory=list)
    delete: bool = False
    keep_receiver: cst.BaseExpression | None = None
    hoist: Hoist | None = None  # the call gets a line of its own, for what comes after it


@dataclass(frozen=True)
class Hoist:
    """`NAME = CALL` for a call that a statement begins with: `return CALL`, `CALL.train()`, `x = CALL.y`.

    `layers`: attributes, calls, subscripts and awaits between the value of the statement and the call.
    """

    name: str
    layers: int


def parse_snippet(snippet: str, module: cst.Module) -> list[Statement]:
    """Statements of a snippet, in the indentation and line ends of `module`. Raises EditRefused."""
    try:
        parsed = cst.parse_module(snippet.strip("\n") + "\n")
    except cst.ParserSyntaxError as fault:
        raise EditRefused(f"the rule's snippet is not Python: {fault.message}") from None
    plain = parsed.visit(_DefaultLayout())
    body: list[Statement] = list(plain.body)
    if body and plain.header:
        body[0] = body[0].with_changes(leading_lines=[*plain.header, *_leading(body[0])])
    return body


def rebuild_line(
    updated: cst.SimpleStatementLine | cst.SimpleStatementSuite,
    plans: Sequence[LinePlan | None],
    module: cst.Module,
) -> list[Statement]:
    """The statements that take the place of a line of small statements."""
    leading = list(updated.leading_lines) if isinstance(updated, cst.SimpleStatementLine) else []
    out: list[Statement] = []
    run: list[cst.BaseSmallStatement] = []

    def flush(last: bool = False) -> None:
        nonlocal run
        if run:
            run[-1] = run[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
            line = cst.SimpleStatementLine(body=run)
            if last:
                line = line.with_changes(trailing_whitespace=updated.trailing_whitespace)
            out.append(line)
            run = []

    for i, (small, entry) in enumerate(zip(updated.body, plans, strict=True)):
        final = i == len(updated.body) - 1
        if entry is None:
            run.append(small)
            continue
        if entry.before:
            flush()
            for snippet in entry.before:
                out.extend(parse_snippet(snippet, module))
        if entry.delete:
            flush()
            if entry.keep_receiver is not None:
                run.append(cst.Expr(value=entry.keep_receiver))
            else:
                out.append(cst.SimpleStatementLine(body=[cst.Expr(value=cst.Name(REMOVED))]))
        elif entry.wrap:
            flush()
            inner: list[Statement] = [
                cst.SimpleStatementLine(body=[small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
            ]
            for template in entry.wrap:
                inner = wrapped(template, inner, module)
            out.extend(inner)
        elif entry.hoist is not None:
            flush()
            call = _inside(small, entry.hoist.layers)
            out.append(_assign(entry.hoist.name, call))
        else:
            run.append(small)
        if entry.after or entry.hoist is not None:
            flush(last=final and entry.hoist is None)
            for snippet in entry.after:
                out.extend(parse_snippet(snippet, module))
            if entry.hoist is not None:
                rest = small.deep_replace(call, cst.Name(entry.hoist.name))
                assert isinstance(rest, cst.BaseSmallStatement)
                run.append(rest)
    flush(last=True)
    if out and leading:
        out[0] = out[0].with_changes(leading_lines=[*leading, *_leading(out[0])])
    return out


def wrapped(template: str, inner: list[Statement], module: cst.Module) -> list[Statement]:
    """`template` with the statements in place of its `{statement}`."""
    hole = parse_snippet(template.replace("{statement}", HOLE), module)
    return [s for wrapping in hole for s in _put_in_hole(wrapping, inner)]


def fold_removed(body: Sequence[Statement]) -> list[Statement]:
    """Drop removed statements; blank lines and comments that stood apart from them stay."""
    out: list[Statement] = []
    carried: list[cst.EmptyLine] = []
    for statement in body:
        if _is_name(statement, REMOVED):
            lines = _leading(statement)
            while lines and lines[-1].comment is not None:
                lines.pop()
            carried.extend(lines)
            continue
        if carried:
            own = _leading(statement)
            if own and own[0].comment is None and carried[-1].comment is None:
                own = own[1:]
            statement = statement.with_changes(leading_lines=[*carried, *own])
            carried = []
        out.append(statement)
    if not out:
        out.append(cst.SimpleStatementLine(body=[cst.Pass()], leading_lines=carried))
    return out


def _is_name(statement: cst.CSTNode, name: str) -> bool:
    """Whether the statement is nothing but `name`."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    only = statement.body[0]
    return isinstance(only, cst.Expr) and isinstance(only.value, cst.Name) and only.value.value == name


def _leading(statement: Statement) -> list[cst.EmptyLine]:
    return list(getattr(statement, "leading_lines", ()))


def _assign(name: str, value: cst.BaseExpression) -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine(
        body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(name))], value=value)]
    )


def _inside(statement: cst.BaseSmallStatement, layers: int) -> cst.BaseExpression:
    """The call that a statement begins with, so many layers deep, or the choice of calls it begins with."""
    node = getattr(statement, "value", None)
    for _ in range(layers):
        if isinstance(node, cst.Call):
            node = node.func
        else:
            node = getattr(node, "expression" if isinstance(node, cst.Await) else "value", None)
    if not isinstance(node, (cst.Call, cst.IfExp)):
        raise EditRefused("another change has moved the call away from the beginning of its statement")
    return node


def _put_in_hole(statement: Statement, inner: list[Statement]) -> list[Statement]:
    """`statement` with its hole filled; a bare hole becomes the inner statements themselves."""
    if _is_name(statement, HOLE):
        return inner
    filled = statement.visit(_FillHole(inner))
    assert isinstance(filled, Statement)
    return [filled]


class _FillHole(cst.CSTTransformer):
    def __init__(self, inner: list[Statement]) -> None:
        self.inner = inner

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        return cst.FlattenSentinel(self.inner) if _is_name(original_node, HOLE) else updated_node


class _DefaultLayout(cst.CSTTransformer):
    """Let indentation and line ends follow the module the snippet goes into."""

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        return updated_node.with_changes(indent=None)
