"""Whether a line of a function lies in a loop of that function, read off the file's syntax."""

from __future__ import annotations

import ast
from types import CodeType

from . import frames

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_TRAINS = frozenset({"backward", "training_step", "manual_backward"})
_OWN_CODE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})  # before Python 3.12

_Loop = tuple[int, int, str]  # first and last line, name of the function it belongs to
_known: dict[str, list[_Loop]] = {}


def inside(code: CodeType, line: int, step_ends: int | None = None) -> bool:
    """`step_ends`: the line at which this function was when a step ended; a loop that holds it trains."""
    return code.co_name in _OWN_CODE or bool(_around(code, line, step_ends))


def outermost(code: CodeType, line: int, step_ends: int | None = None) -> int | None:
    """First line of the outermost loop that the line lies in."""
    return min(_around(code, line, step_ends), default=None)


def _around(code: CodeType, line: int, step_ends: int | None) -> list[int]:
    path = frames.absolute(code.co_filename)
    if path not in _known:
        _known[path] = _read(path)
    return [
        first
        for first, last, owner in _known[path]
        if first <= line <= last
        and owner == code.co_name
        and first >= code.co_firstlineno
        and not (step_ends is not None and first <= step_ends <= last)
    ]


def _read(path: str) -> list[_Loop]:
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError):
        return []
    found: list[_Loop] = []
    _visit(tree, "<module>", found)
    return found


def _visit(node: ast.AST, owner: str, found: list[_Loop]) -> None:
    if isinstance(node, _LOOPS) and not _trains(node):
        found.append((node.body[0].lineno, node.body[-1].end_lineno or node.lineno, owner))
    elif isinstance(node, _COMPREHENSIONS):
        found.append((node.lineno, node.end_lineno or node.lineno, owner))
    if isinstance(node, _FUNCTIONS):
        owner = getattr(node, "name", "<lambda>")
    for child in ast.iter_child_nodes(node):
        _visit(child, owner, found)


def _trains(loop: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TRAINS
        for node in ast.walk(loop)
    )
