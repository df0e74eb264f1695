"""The user's files as syntax, and the values of a frame, without running any of the user's code."""

from __future__ import annotations

import ast
import sys
from types import CodeType, FrameType
from typing import Any

from . import frames

_OPTIMISED = 0x1  # of a function: its locals are no dictionary
_ASK = {"locals", "vars", "eval", "exec", "dir", "f_locals"}
_OWN_REFERENCES = 3  # the frame's, the name here and the argument of the count
_trees: dict[str, ast.Module | None] = {}


def tree(path: str) -> ast.Module | None:
    """The parsed file, read once; None when it cannot be read."""
    if path not in _trees:
        try:
            with open(path, "rb") as file:
                _trees[path] = ast.parse(file.read(), path)
        except (OSError, SyntaxError, ValueError):
            _trees[path] = None
    return _trees[path]


def body(code: CodeType) -> Any:
    """The function's own node, or the module; None when the file does not show it."""
    whole = tree(frames.absolute(code.co_filename))
    if whole is None or code.co_name == "<module>":
        return whole
    for node in ast.walk(whole):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None


def loops_at(code: CodeType, line: int) -> list[ast.AST]:
    """Loops of this function around the line, innermost first."""
    node = body(code)
    found: list[ast.AST] = []
    if node is not None:
        _around(node, line, found)
    return found[::-1]


def _around(node: ast.AST, line: int, found: list[ast.AST]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        first, last = getattr(child, "lineno", None), getattr(child, "end_lineno", None)
        if first is not None and last is not None and not first <= line <= last:
            continue
        if isinstance(child, (ast.For, ast.While)):
            found.append(child)
        _around(child, line, found)


def values(frame: FrameType) -> dict[str, Any]:
    """The frame's local names.

    Before Python 3.13 a frame keeps the dictionary it once gave out, and with it every value in there: it is
    emptied, unless the job itself has it. A function that asks for its own locals is not looked at, since the
    look would bring that dictionary up to date.
    """
    older = sys.version_info < (3, 13) and bool(frame.f_code.co_flags & _OPTIMISED)
    if older and _ASK & {*frame.f_code.co_names}:
        return {}
    given = frame.f_locals
    found = dict(given)
    if older and sys.getrefcount(given) <= _OWN_REFERENCES:
        given.clear()
    return found
