"""Set one key in the text of a YAML, JSON or TOML file; every other character stays."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.apply.locate import EditRefused

Value = str | int | float | bool
_MARKED = (".yaml", ".yml", ".json")


def has_key(text: str, suffix: str, key: str, *, plain: bool = False) -> bool:
    """Whether the file gives `key` (dotted for nested ones) a value; `plain`: one that is no list or mapping.

    A file that cannot be read has none.
    """
    try:
        data = _load(text, suffix)
    except EditRefused:
        return False
    path = _lookup(data, key)
    return path is not None and not (plain and isinstance(_get(data, path), (dict, list)))


def value_of(text: str, suffix: str, key: str) -> Any:
    """The value of `key`; None where there is none. Raises EditRefused for a file that cannot be read."""
    data = _load(text, suffix)
    path = _lookup(data, key)
    return None if path is None else _get(data, path)


def numbers(text: str, suffix: str) -> list[tuple[str, int]]:
    """(dotted key, value) of every whole number of the file. Raises EditRefused where it cannot be read."""

    def inner(data: Any, before: str) -> Iterator[tuple[str, int]]:
        for key, value in data.items() if isinstance(data, dict) else ():
            if isinstance(value, dict):
                yield from inner(value, f"{before}{key}.")
            elif isinstance(value, int) and not isinstance(value, bool):
                yield f"{before}{key}", value

    return list(inner(_load(text, suffix), ""))


def set_key(text: str, suffix: str, key: str, value: Value) -> str:
    """The text with `key` at `value`; a missing key is added beside its siblings. Raises EditRefused."""
    typed = _typed(value)
    data = _load(text, suffix)
    path = _lookup(data, key) or (key.split(".") if not isinstance(data, dict) or key not in data else [key])
    if suffix == ".toml":
        new = _set_toml(text, path, typed)
    else:
        new = _splice(text, path, typed, suffix)
    after = _load(new, suffix)
    if _get(after, path) != typed:
        raise EditRefused(f"'{key}' could not be set in the configuration file")
    return new


def _load(text: str, suffix: str) -> Any:
    try:
        if suffix == ".json":
            return json.loads(text)
        if suffix == ".toml":
            import tomlkit

            return tomlkit.parse(text).unwrap()
        from ruamel.yaml import YAML

        return YAML(typ="safe", pure=True).load(text) or {}
    except Exception as fault:
        raise EditRefused(f"the configuration file cannot be read: {str(fault).splitlines()[0]}") from None


def _lookup(data: Any, key: str) -> list[str] | None:
    """Path of a key that is there: whole, or split at its dots."""
    for path in ([key], key.split(".")):
        node = data
        for part in path:
            if not isinstance(node, dict) or part not in node:
                break
            node = node[part]
        else:
            return path
    return None


def _get(data: Any, path: list[str]) -> Any:
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _typed(value: Value) -> Value:
    """A rule's rendered text as the scalar it spells."""
    if not isinstance(value, str):
        return value
    lowered = value.strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _scalar(value: Value, suffix: str) -> str:
    plain = isinstance(value, str) and suffix != ".json" and re.fullmatch(r"[A-Za-z][\w./-]*", value)
    if plain and str(value).lower() not in ("null", "yes", "no", "on", "off", "y", "n"):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _splice(text: str, path: list[str], value: Value, suffix: str) -> str:
    """Replace the value's own characters, or add a line; JSON is read as YAML to learn where things stand."""
    from ruamel.yaml import YAML
    from ruamel.yaml.nodes import MappingNode, ScalarNode

    try:
        root = YAML(pure=True).compose(text)
    except Exception:
        return _rewrite_json(text, path, value) if suffix == ".json" else _refuse_layout()
    if root is None:
        return text + f"{'.'.join(path)}: {_scalar(value, suffix)}\n" if len(path) == 1 else _refuse_layout()
    node = root
    for depth, part in enumerate(path):
        if not isinstance(node, MappingNode):
            raise EditRefused(f"'{'.'.join(path[:depth])}' holds no keys in the configuration file")
        found = next(((k, v) for k, v in node.value if getattr(k, "value", None) == part), None)
        if found is None:
            return _add(text, node, path[depth:], value, suffix)
        name, node = found
    if node.start_mark.index < name.start_mark.index:
        raise EditRefused(f"'{'.'.join(path)}' is an alias of a value that others share")
    if getattr(node, "anchor", None) is not None:
        raise EditRefused(f"'{'.'.join(path)}' is a value that aliases share")
    if not isinstance(node, ScalarNode) or node.style in ("|", ">"):
        raise EditRefused(f"'{'.'.join(path)}' is not a plain value in the configuration file")
    start, end = _span(text, name, node)
    spelled = _scalar(value, suffix)
    if start == end and text[start - 1 : start] == ":":
        spelled = " " + spelled
    return text[:start] + spelled + text[end:]


def _span(text: str, name: Any, node: Any) -> tuple[int, int]:
    """Where a scalar stands; one that is not written (`key:`) stands right behind its colon."""
    start, end = node.start_mark.index, node.end_mark.index
    if start != end:
        return start, end
    at = text.index(":", name.end_mark.index) + 1
    return at, at


def _add(text: str, node: Any, rest: list[str], value: Value, suffix: str) -> str:
    """Add `rest` = value to a mapping, behind its last entry."""
    spelled = _scalar(value, suffix)
    for part in reversed(rest[1:]):
        spelled = f"{{{json.dumps(part)}: {spelled}}}"
    name = json.dumps(rest[0]) if suffix == ".json" else rest[0]
    if node.flow_style:
        if not node.value:
            at = node.start_mark.index + 1
            return text[:at] + f"{name}: {spelled}" + text[at:]
        key, last = node.value[-1]
        line = text[: key.start_mark.index].rpartition("\n")[2]
        own_line = not line.strip()
        gap = ("\r\n" if "\r\n" in text else "\n") + line if own_line else " "
        at = last.end_mark.index
        return text[:at] + f",{gap}{name}: {spelled}" + text[at:]
    if not node.value:
        _refuse_layout()
    key, last = node.value[-1]
    indent = " " * key.start_mark.column
    end = _span(text, key, last)[1] if last.id == "scalar" else last.end_mark.index
    # A block's mark lies behind its trailing comments and blank lines: the new line goes before those.
    body = text[:end].rstrip() if last.id != "scalar" else text[:end]
    rest_of_line = text[len(body) :].partition("\n")[0].rstrip("\r")
    at = len(body) + len(rest_of_line)
    line_end = "\r\n" if "\r\n" in text else "\n"
    return text[:at] + f"{line_end}{indent}{name}: {spelled}" + text[at:]


def _set_toml(text: str, path: list[str], value: Value) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    table: Any = document
    for part in path[:-1]:
        if part not in table:
            table[part] = tomlkit.table()
        table = table[part]
    table[path[-1]] = value
    return tomlkit.dumps(document)


def _rewrite_json(text: str, path: list[str], value: Value) -> str:
    data = json.loads(text)
    node = data
    for part in path[:-1]:
        node = node.setdefault(part, {})
    node[path[-1]] = value
    indent = re.search(r"\n([ \t]+)", text)
    out = json.dumps(data, indent=indent.group(1) if indent else None, ensure_ascii=False)
    return out + ("\n" if text.endswith("\n") else "")


def _refuse_layout() -> str:
    raise EditRefused("the layout of the configuration file leaves no place for the key")


def readable(path: Path) -> bool:
    """Whether this module can edit the file."""
    return path.suffix.lower() in (*_MARKED, ".toml")
