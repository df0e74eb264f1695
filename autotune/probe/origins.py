"""Where an argument's value came from, read off the call's own source text and the frame it ran in."""

from __future__ import annotations

import ast
import os
import sys
from types import FrameType
from typing import Any
from weakref import ref

from .frames import Span, absolute
from .source import values as local_names

_trees: dict[str, dict[Span, ast.AST] | None] = {}
# namespaces that argparse filled: (weak reference, destination -> option string)
_namespaces: list[tuple[Any, dict[str, str]]] = []


def remember_namespace(namespace: Any, options: dict[str, str]) -> None:
    _namespaces[:] = [(seen, flags) for seen, flags in _namespaces if seen() is not None][-16:]
    known = option_flags(namespace)
    if known is not None:
        known.update(options)
        return
    _namespaces.append((ref(namespace), dict(options)))


def option_flags(value: object) -> dict[str, str] | None:
    """Destination -> option string of an argparse namespace that was parsed from the command line."""
    for seen, options in _namespaces:
        if seen() is value:
            return options
    return None


def namespaces() -> list[Any]:
    return [value for seen, _ in _namespaces if (value := seen()) is not None]


def call_node(filename: str, span: Span | None) -> ast.AST | None:
    """The expression of the file that has exactly this span."""
    if span is None:
        return None
    path = absolute(filename)
    if path not in _trees:
        _trees[path] = _index(path)
    table = _trees[path]
    return None if table is None else table.get(span)


def _index(path: str) -> dict[Span, ast.AST] | None:
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError):
        return None
    table: dict[Span, ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and node.end_lineno is not None and node.end_col_offset is not None:
            key = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
            if isinstance(node, ast.Call) or key not in table:
                table[key] = node
    return table


def called_name(node: ast.AST | None) -> str | None:
    """Last name of the callee as it is written: `DataLoader`, `step`, `from_pretrained`."""
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def arguments(
    node: ast.AST | None, frame: FrameType, names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Arguments as the callee got them, each with its origin; and argument -> command-line option.

    `names`: the callee's positional parameters without self.
    """
    found: dict[str, dict[str, Any]] = {}
    flags: dict[str, str] = {}
    call = node if isinstance(node, ast.Call) else None
    starred = call is not None and any(isinstance(value, ast.Starred) for value in call.args)
    for position, value in enumerate(args):
        name = names[position] if position < len(names) else f"#{position}"
        source = call.args[position] if call and not starred and position < len(call.args) else None
        origin, flag = _origin(source, frame) if source is not None else ("unknown", None)
        found[name] = {"text": short(value, name), "origin": origin, "position": position}
        if flag:
            flags[name] = flag
    written = {word.arg: word.value for word in call.keywords if word.arg} if call else {}
    spread = call is not None and any(word.arg is None for word in call.keywords)
    for name, value in kwargs.items():
        flag = None
        if name in written:
            origin, flag = _origin(written[name], frame)
        elif spread:
            origin = "star-kwargs"
        else:
            origin = "unknown"
        found[name] = {"text": short(value, name), "origin": origin, "position": None}
        if flag:
            flags[name] = flag
    return found, flags


def arguments_from_source(
    node: ast.AST | None, frame: FrameType, names: list[str], values: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The same for a callee whose own arguments were not seen, only the `values` it settled on.

    What `**` brings is read where it is a plain dict under a name; else any value may come from there.
    """
    if not isinstance(node, ast.Call) or any(isinstance(value, ast.Starred) for value in node.args):
        return {}, {}
    found: dict[str, dict[str, Any]] = {}
    flags: dict[str, str] = {}
    given: list[tuple[str, int | None, ast.AST | None]] = [
        (names[i] if i < len(names) else f"#{i}", i, source) for i, source in enumerate(node.args)
    ]
    for word in node.keywords:
        if word.arg:
            given.append((word.arg, None, word.value))
        else:
            given += [(name, None, None) for name in _brought(word.value, node, frame, values)]
    for name, position, source in given:
        if source is None and name in found:  # it stands before the ** in the call
            continue
        origin, flag = _origin(source, frame) if source is not None else ("star-kwargs", None)
        text = short(values[name], name) if name in values else ast.unparse(source)[:120] if source else ""
        found[name] = {"text": text, "origin": origin, "position": position}
        if flag:
            flags[name] = flag
    return found, flags


def _brought(spread: ast.AST, call: ast.Call, frame: FrameType, values: dict[str, Any]) -> list[str]:
    """Names that `**spread` brings; where that cannot be seen, all that the call does not write itself."""
    known = _value(spread, frame)
    if isinstance(known, dict):
        return [str(key) for key in known]
    if isinstance(spread, ast.Dict) and all(isinstance(key, ast.Constant) for key in spread.keys):
        return [str(key.value) for key in spread.keys if isinstance(key, ast.Constant)]
    written = {word.arg for word in call.keywords}
    return [name for name in values if name not in written]


def _origin(node: ast.AST, frame: FrameType) -> tuple[str, str | None]:
    """(origin, command-line option) of one argument expression."""
    try:
        ast.literal_eval(node)  # type: ignore[arg-type]
        return "literal", None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        pass
    if isinstance(node, ast.Attribute):
        options = option_flags(_value(node.value, frame))
        if options is not None:
            return "cli", options.get(node.attr)
        return "variable", None
    if isinstance(node, ast.Name):
        source = _assigned_from(node.id, frame)
        if source is not None:
            return _origin(source, frame)
        return "variable", None
    text = ast.dump(node)
    if "environ" in text or "getenv" in text:
        return "env", None
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute):
            options = option_flags(_value(inner.value, frame))
            if options is not None:
                return "expression", options.get(inner.attr)
    return "expression", None


def _value(node: ast.AST, frame: FrameType) -> object:
    """Value of a plain name or attribute chain in the frame, without running any code of the user's."""
    if isinstance(node, ast.Name):
        local = local_names(frame)
        if node.id in local:
            return local[node.id]
        code = frame.f_code
        own = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
        return None if node.id in own else frame.f_globals.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _value(node.value, frame)
        return getattr(base, "__dict__", {}).get(node.attr) if base is not None else None
    return None


def _assigned_from(name: str, frame: FrameType) -> ast.AST | None:
    """`name = args.value` as the only assignment to that name in the file: the attribute is the origin."""
    table = _trees.get(absolute(frame.f_code.co_filename))
    if not table:
        return None
    sources = _assignments(absolute(frame.f_code.co_filename)).get(name, [])
    if len(sources) == 1 and isinstance(sources[0], ast.Attribute):
        return sources[0]
    return None


_assigned: dict[str, dict[str, list[ast.AST]]] = {}


def _assignments(path: str) -> dict[str, list[ast.AST]]:
    if path not in _assigned:
        table: dict[str, list[ast.AST]] = {}
        try:
            with open(path, "rb") as file:
                tree = ast.parse(file.read(), path)
        except (OSError, SyntaxError, ValueError):
            tree = ast.Module(body=[], type_ignores=[])
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.NamedExpr)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                value = getattr(node, "value", None) or ast.Constant(value=None)
                for target in targets:
                    for inner in ast.walk(target):
                        if isinstance(inner, ast.Name):
                            table.setdefault(inner.id, []).append(value)
        _assigned[path] = table
    return _assigned[path]


_conditions: dict[str, list[ast.If]] = {}


def asked_by(frame: FrameType) -> str | None:
    """The option of the command line on which the running statement depends: `if args.low_memory: ...`."""
    path = absolute(frame.f_code.co_filename)
    if path not in _conditions:
        try:
            with open(path, "rb") as file:
                tree = ast.parse(file.read(), path)
        except (OSError, SyntaxError, ValueError):
            tree = ast.Module(body=[], type_ignores=[])
        _conditions[path] = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    for node in _conditions[path]:
        if not node.body[0].lineno <= frame.f_lineno <= (node.body[-1].end_lineno or 0):
            continue
        for inner in ast.walk(node.test):
            options = option_flags(_value(inner.value, frame)) if isinstance(inner, ast.Attribute) else None
            flag = options.get(inner.attr) if options and isinstance(inner, ast.Attribute) else None
            if flag and any(word == flag or word.startswith(flag + "=") for word in sys.argv):
                return flag
    return None


_SECRET_NAMES = ("token", "key", "secret", "password", "auth", "credential")


def short(value: object, name: str = "", depth: int = 4) -> str:
    """A short text of a value: never a secret, never a tensor's contents; `depth` containers deep."""
    if any(word in name.lower() for word in _SECRET_NAMES) and isinstance(value, str):
        return "<hidden>"
    if value is None or isinstance(value, (bool, int, float, complex)):
        return repr(value)
    if isinstance(value, (str, bytes)):
        from .redaction import clean

        text = repr(value)
        return clean(text if len(text) <= 120 else text[:117] + "...", 120)
    if isinstance(value, os.PathLike):
        return repr(str(value))[:120]
    if isinstance(value, (tuple, list)) and len(value) <= 8 and depth:
        inner = ", ".join(short(item, depth=depth - 1) for item in value)
        return f"[{inner}]"[:120] if isinstance(value, list) else f"({inner})"[:120]
    if isinstance(value, dict) and len(value) <= 8 and depth:
        items = (f"{key!r}: {short(item, str(key), depth - 1)}" for key, item in value.items())
        return ("{" + ", ".join(items) + "}")[:160]
    kind = type(value)
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device"):
        return str(value)
    named = getattr(value, "__qualname__", None)
    if isinstance(named, str):
        return f"{getattr(value, '__module__', '')}.{named}"[:120]
    return f"<{kind.__module__}.{kind.__qualname__}>"[:120]
