"""Makes the Site records a watched job would leave, by parsing a source text for the call."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

from autotune.records.sites import Argument, Site, SiteKind, Span


def _last(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def calls_named(text: str, name: str) -> list[ast.Call]:
    """Calls whose last name is `name`, in source order (outer before inner at one start)."""
    found = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and _last(n.func) == name]
    return sorted(
        found, key=lambda n: (n.lineno, n.col_offset, -(n.end_lineno or 0), -(n.end_col_offset or 0))
    )


def site_of(
    text: str,
    call: ast.Call,
    *,
    kind: SiteKind,
    callee: str,
    parameters: tuple[str, ...] = (),
    star: dict[str, str] | None = None,
    file: str = "train.py",
    site_id: str = "s1",
    span: bool = True,
    detail: dict[str, str | int | float | bool | None] | None = None,
) -> Site:
    """The site of a call. `parameters` are the callee's, in order; `star` is what ** carried."""
    arguments: dict[str, Argument] = {}
    for i, value in enumerate(call.args):
        if isinstance(value, ast.Starred):
            break
        if i < len(parameters):
            arguments[parameters[i]] = Argument(text=ast.unparse(value), origin="variable", position=i)
    for keyword in call.keywords:
        if keyword.arg is not None:
            arguments[keyword.arg] = Argument(text=ast.unparse(keyword.value), origin="variable")
    for name, shown in (star or {}).items():
        arguments[name] = Argument(text=shown, origin="star-kwargs")
    return Site(
        id=site_id,
        kind=kind,
        callee=callee,
        file=file,
        file_sha256=hashlib.sha256(text.encode()).hexdigest(),
        span=Span(
            line=call.lineno,
            byte_column=call.col_offset,
            end_line=call.end_lineno or call.lineno,
            end_byte_column=call.end_col_offset or 0,
        )
        if span
        else None,
        line=call.lineno,
        function="main",
        arguments=arguments,
        detail=detail or {},
    )


def site_in(
    path: Path,
    name: str,
    *,
    kind: SiteKind,
    callee: str | None = None,
    nth: int = 0,
    parameters: tuple[str, ...] = (),
    star: dict[str, str] | None = None,
    site_id: str | None = None,
) -> Site:
    """The site of the nth call of `name` in a file."""
    text = path.read_text(encoding="utf-8")
    call = calls_named(text, name)[nth]
    return site_of(
        text,
        call,
        kind=kind,
        callee=callee or name,
        parameters=parameters,
        star=star,
        file=str(path),
        site_id=site_id or f"{kind}-{nth}",
    )
