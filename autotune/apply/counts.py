"""Change a number of the job (batch size, accumulation) at the one place where it is written.

A number stands on the command line, in a configuration file, or as a literal in the project's code: assigned
to a name, given by keyword, the default of an option or of a parameter. It is changed only where exactly one
place has the name and the value that was observed; otherwise the edit is refused and says what was found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from autotune.apply import configs, flags
from autotune.apply.calls import find_argument
from autotune.apply.locate import EditRefused, find_call, last_name, parse
from autotune.apply.target import Target
from autotune.records.sites import Site


@dataclass(frozen=True)
class Count:
    """Where a number is written: an option, a key of a configuration file, or a literal of a source file."""

    name: str
    place: str
    flag: str | None = None
    key: str | None = None
    file: Path | None = None


def find_count(target: Target, names: str, was: int) -> Count:
    """The place of the number `was` whose whole name fits `names`. Raises EditRefused unless there is one."""
    pattern = re.compile(names)
    given = list(_on_command_line(target, pattern, was))
    found = given or [*_in_configs(target, pattern, was), *_in_sources(target, pattern, was)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise EditRefused(f"{_line_of_step(target)}no place says that it is {was}")
    places = ", ".join(f"{count.name} ({count.place})" for count in found[:4])
    raise EditRefused(f"{_line_of_step(target)}{len(found)} places may say that it is {was}: {places}")


def find_argument_count(target: Target, site: Site, argument: str, was: int) -> Count | None:
    """Where the call at `site` takes the number from; None: it is written in the call. Raises EditRefused."""
    where = f"{site.file}:{site.line}: "
    call = find_call(parse(target.text(Path(site.file))), site)
    flag = site.detail.get(f"flag.{argument}")
    seen = site.arguments.get(argument)
    if seen is not None and seen.text != str(was):
        raise EditRefused(f"{where}'{argument}' is {seen.text}, not {was}")
    if isinstance(flag, str):
        return Count(flag, "the command line", flag=flag)
    at = find_argument(call, argument, site.arguments)
    if at is None:
        raise EditRefused(f"{where}the call does not give '{argument}' by itself")
    value = call.args[at].value
    if isinstance(value, cst.Integer):
        return None
    name = last_name(value)
    if name is None:
        raise EditRefused(f"{where}'{argument}' is computed there")
    return find_count(target, re.escape(plain(name)), was)


def with_literal(text: str, names: str, was: int, value: int, path: Path) -> str:
    """The text with the one literal of that name changed. Raises EditRefused unless there is exactly one."""
    found = list(_literals(text, re.compile(names), was))
    if len(found) != 1:
        raise EditRefused(f"{path}: {len(found)} places may hold the number {was}")
    _, node = found[0]
    lines = text.splitlines(keepends=True)
    line = lines[node.lineno - 1].encode()
    assert node.end_col_offset is not None
    lines[node.lineno - 1] = (
        line[: node.col_offset] + str(value).encode() + line[node.end_col_offset :]
    ).decode()
    return "".join(lines)


def _on_command_line(target: Target, pattern: re.Pattern[str], was: int) -> Iterator[Count]:
    command = target.command
    if command.args_index is None:
        return
    for word in command.argv[command.args_index :]:
        name = word.partition("=")[0].lstrip("+~")
        if not pattern.fullmatch(plain(name)) or not (word.startswith("-") or "=" in word):
            continue
        if flags.flag_value(list(command.argv), command, name) == str(was):
            yield Count(name, "the command line", flag=name)


def _in_configs(target: Target, pattern: re.Pattern[str], was: int) -> Iterator[Count]:
    for file in target.command.config_files:
        path = Path(file.path)
        try:
            keys = configs.numbers(target.text(path), path.suffix.lower())
        except EditRefused:
            continue
        for key, value in keys:
            if value == was and pattern.fullmatch(plain(key.rpartition(".")[2])):
                yield Count(key, str(path), key=key)


def _in_sources(target: Target, pattern: re.Pattern[str], was: int) -> Iterator[Count]:
    files = [target.script] if target.script is not None else []
    files += [Path(site.file) for site in target.sites if site.editable]
    for path in dict.fromkeys(files):
        try:
            text = target.text(path)
        except EditRefused:
            continue
        for name, node in _literals(text, pattern, was):
            option = name if name.startswith("-") else None
            yield Count(name, f"{path}:{node.lineno}", flag=option, file=None if option else path)


def _literals(text: str, pattern: re.Pattern[str], was: int) -> Iterator[tuple[str, ast.Constant]]:
    """(name, literal) of every place in a source text that gives the number a name that fits."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        for name, value in _named_values(node):
            number = isinstance(value, ast.Constant) and type(value.value) is int and value.value == was
            if number and pattern.fullmatch(plain(name)):
                assert isinstance(value, ast.Constant)
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and _assigned(tree, name) != 1:
                    raise EditRefused(f"'{name}' is assigned more than once (line {value.lineno})")
                yield name, value


def _named_values(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        yield _written(node.targets[0]), node.value
    elif isinstance(node, ast.AnnAssign):
        yield _written(node.target), node.value
    elif isinstance(node, ast.Call):
        option = _option(node)
        for word in node.keywords:
            if option and word.arg == "default":
                yield option, word.value
            elif word.arg:
                yield word.arg, word.value
    elif isinstance(node, ast.Dict):
        for key, entry in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, entry
    elif isinstance(node, ast.arguments):
        positional = [*node.posonlyargs, *node.args]
        defaults: Sequence[ast.expr | None] = node.defaults
        for argument, value in zip(positional[len(positional) - len(defaults) :], defaults, strict=True):
            yield argument.arg, value
        for argument, value in zip(node.kwonlyargs, node.kw_defaults, strict=True):
            yield argument.arg, value


def _option(call: ast.Call) -> str:
    """The option that `parser.add_argument("--name", ...)` or `@click.option("--name", ...)` declares."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in ("add_argument", "option", "Option"):
        return ""
    words = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return next((word for word in words if word.startswith("--")), "")


def _written(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _assigned(tree: ast.AST, name: str) -> int:
    """How often a name is bound in the file."""
    return sum(
        (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name)
        or (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == name)
        for node in ast.walk(tree)
    )


def plain(name: str) -> str:
    """A setting's name however it is spelled."""
    return name.lstrip("-").replace("-", "_").lower()


def _line_of_step(target: Target) -> str:
    """Where the job updates, for the reader of a refusal."""
    for kind in ("optimizer_step", "backward", "loader"):
        for site in target.sites:
            if site.kind == kind and site.editable:
                return f"{site.file}:{site.line}: "
    return ""
