"""Add an import at the top of a module: after its docstring and `from __future__` lines, before the rest."""

from __future__ import annotations

import libcst as cst

from autotune.apply.locate import code


def add_imports(module: cst.Module, lines: list[str]) -> cst.Module:
    """The module with each import line in it once, in the order given."""
    present = {
        code(small)
        for statement in module.body
        if isinstance(statement, cst.SimpleStatementLine)
        for small in statement.body
        if isinstance(small, (cst.Import, cst.ImportFrom))
    }
    fresh = [cst.parse_statement(line) for line in dict.fromkeys(lines) if line.strip() not in present]
    if not fresh:
        return module
    body = list(module.body)
    at = _start(body)
    following = body[at] if at < len(body) else None
    if following is not None:
        lead = list(getattr(following, "leading_lines", ()))
        blank = []
        while lead and lead[0].comment is None:
            blank.append(lead.pop(0))
        fresh[0] = fresh[0].with_changes(leading_lines=blank)
        if not _is_import(following) or lead:
            lead = [cst.EmptyLine(indent=False), *lead]
        body[at] = following.with_changes(leading_lines=lead)
    return module.with_changes(body=[*body[:at], *fresh, *body[at:]])


def _start(body: list[cst.SimpleStatementLine | cst.BaseCompoundStatement]) -> int:
    at = 0
    if body and _is_docstring(body[0]):
        at = 1
    for i in range(at, len(body)):
        if not _is_future(body[i]):
            return at
        at = i + 1
    return at


def _is_docstring(statement: cst.CSTNode) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and len(statement.body) == 1
        and isinstance(statement.body[0], cst.Expr)
        and isinstance(statement.body[0].value, (cst.SimpleString, cst.ConcatenatedString))
    )


def _is_future(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and any(
        isinstance(small, cst.ImportFrom) and small.module is not None and code(small.module) == "__future__"
        for small in statement.body
    )


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(small, (cst.Import, cst.ImportFrom)) for small in statement.body
    )
