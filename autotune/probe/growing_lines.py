"""Lines of the user's files at which a name is made to hold more, or less, or something else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import CodeType
from typing import Any

from . import frames, places, source

_GROW = frozenset({"append", "extend", "add", "update", "insert", "appendleft", "setdefault", "put"})
_SHRINK = frozenset({"clear", "pop", "popleft", "popitem", "remove", "discard"})
_JOIN = frozenset({"cat", "concat", "concatenate", "append", "hstack", "vstack"})
_BEGIN = frozenset({"empty", "zeros", "tensor", "array"})


def growing(path: str, name: str, at: Any) -> places.Place | None:
    """The line at which the name is made to hold more: in its function, else anywhere in its file."""
    for node in _bodies(path, at):
        line = _growing_line(node, _plain(name))
        if line is not None:
            return _code(at, path), line
    return None


def bounded(path: str, name: str, at: Any) -> bool:
    """Is the name also made to hold less: emptied now and then, or cut to its newest values?"""
    plain = _plain(name)
    return any(_shrinks(node, plain) or _emptied(node, plain) for node in _bodies(path, at))


def joined(path: str, name: str, at: Any) -> bool:
    """Is the name a tensor or an array that is joined with more, and never given anything else?"""
    plain = _plain(name)
    bodies = _bodies(path, at)[:1]
    values = [value for body in bodies for value in _given(body, plain)]
    joins = [_is_join(value, plain) for value in values]
    return any(joins) and all(
        is_join or _is_beginning(value) for is_join, value in zip(joins, values, strict=True)
    )


def _plain(name: str) -> str:
    return name.split("[", 1)[0]


def _bodies(path: str, at: Any) -> list[ast.AST]:
    found = [source.body(at) if isinstance(at, CodeType) else None, source.tree(path)]
    return [node for node in found if node is not None]


def _code(at: Any, path: str) -> CodeType:
    """A code object of that file, for a place."""
    if isinstance(at, CodeType):
        return at
    for member in vars(at).values():
        code = getattr(member, "__code__", None)
        if isinstance(code, CodeType) and frames.absolute(code.co_filename) == frames.absolute(path):
            return code
    return compile("", path, "exec")


def _growing_line(root: ast.AST, name: str) -> int | None:
    for node in ast.walk(root):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROW:
            if _about(node.func.value, name):
                return node.lineno
        elif (isinstance(node, ast.AugAssign) and _about(node.target, name)) or (
            isinstance(node, ast.Assign)
            and any(_about(target, name) for target in node.targets)
            and _names(node.value, name)
        ):
            return node.lineno
    for node in ast.walk(root):  # a new key of a dictionary
        if isinstance(node, ast.Assign) and any(_is_item(target, name) for target in node.targets):
            return node.lineno
    return None


def _shrinks(root: ast.AST, name: str) -> bool:
    for node in ast.walk(root):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SHRINK:
            if _about(node.func.value, name):
                return True
        elif isinstance(node, ast.Delete):
            if any(_is_item(target, name) for target in node.targets):
                return True
        elif isinstance(node, ast.Assign) and any(_about(target, name) for target in node.targets):
            parts = [part for part in ast.walk(node.value) if isinstance(part, ast.Subscript)]
            if any(_about(part, name) and isinstance(part.slice, ast.Slice) for part in parts):
                return True
    return False


def _is_item(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Subscript) and _about(node, name)


def _emptied(root: ast.AST, name: str) -> bool:
    """Given something new, not computed from itself, under a condition in a loop."""
    loops = [node for node in ast.walk(root) if isinstance(node, (ast.For, ast.While))]
    conditions = {branch for loop in loops for branch in ast.walk(loop) if isinstance(branch, ast.If)}
    for node in {
        inner for branch in conditions for inner in ast.walk(branch) if isinstance(inner, ast.Assign)
    }:
        for target in node.targets:
            new_key = isinstance(target, ast.Subscript) and not _is_empty(node.value)
            if _about(target, name) and not new_key and not _names(node.value, name):
                return True
    return False


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return not value.args and not value.keywords
    return isinstance(value, (ast.List, ast.Dict)) and not list(ast.iter_child_nodes(value))[1:]


def _given(root: ast.AST, name: str) -> Iterator[ast.expr]:
    """What the name is set to; a name set in any other way (a loop's, an argument's) counts as itself."""
    for node in ast.walk(root):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if _about(target, name):
                    yield node.value
                elif isinstance(target, (ast.Tuple, ast.List)) and _names(target, name):
                    yield target
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and _about(node.target, name):
            if node.value is not None:
                yield node.value
        elif isinstance(node, (ast.For, ast.comprehension)) and _names(node.target, name):
            yield node.target
        elif isinstance(node, ast.arg) and node.arg == name:
            yield ast.Name(name)


def _is_join(value: ast.expr, name: str) -> bool:
    """`torch.cat([name, more])`, `np.append(name, more)`."""
    return isinstance(value, ast.Call) and _called(value) in _JOIN and _names(value, name)


def _is_beginning(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return _called(value) in _BEGIN
    return isinstance(value, ast.Constant) or (isinstance(value, ast.List) and not value.elts)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _names(node: ast.AST, name: str) -> bool:
    return any(_about(part, name) for part in ast.walk(node))


def _about(node: ast.AST, name: str) -> bool:
    """`name`, `self.name`, and an item of either."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return name == (node.id if isinstance(node, ast.Name) else getattr(node, "attr", None))
