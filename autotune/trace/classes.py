"""Kernel classes: what a GPU kernel's name, or the op that launched it, says about its work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from autotune.errors import InputError

UNCLASSIFIED = "other"
_TABLE = "kernel_classes.yaml"
_PAIRS = {"(": ")", "<": ">", "{": "}", "[": "]"}


def read_table(path: Path) -> dict[str, Any]:
    """A table from `rules/_tables`."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        value = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as fault:
        raise InputError(
            f"table cannot be read ({fault.strerror})", where=str(path), code="table-broken"
        ) from None
    except yaml.YAMLError as fault:
        raise InputError(
            f"table is no YAML ({str(fault).splitlines()[0]})", where=str(path), code="table-broken"
        ) from None
    if not isinstance(value, dict):
        raise InputError("table holds no mapping", where=str(path), code="table-broken")
    return value


@dataclass(frozen=True, slots=True)
class _Pattern:
    head: re.Pattern[str]
    args: re.Pattern[str] | None

    def fits(self, head: str, rest: str) -> bool:
        return self.head.match(head) is not None and (self.args is None or self.args.search(rest) is not None)


@dataclass(frozen=True, slots=True)
class _Class:
    name: str
    title: str
    kernels: tuple[_Pattern, ...]
    ops: tuple[re.Pattern[str], ...]


class KernelTable:
    """The loaded class table."""

    def __init__(self, path: Path) -> None:
        raw = read_table(path)
        try:
            self.anonymous = tuple(re.compile(text) for text in raw["anonymous"])
            self.classes = tuple(
                _Class(
                    item["name"],
                    item["title"],
                    tuple(_pattern(entry) for entry in item["kernels"]),
                    tuple(re.compile(text) for text in item["ops"]),
                )
                for item in raw["classes"]
            )
            self.dtypes = tuple(
                (item["dtype"], tuple(re.compile(text) for text in item["patterns"]))
                for item in raw["gemm_dtypes"]
            )
            self.matrix_convolutions = tuple(re.compile(text) for text in raw["matrix_convolutions"])
        except (KeyError, TypeError, re.error) as fault:
            raise InputError(
                f"kernel class table is malformed ({fault!r})", where=str(path), code="table-broken"
            ) from None
        self.names = [item.name for item in self.classes]

    def of_kernel(self, name: str) -> str | None:
        """Class by kernel name; None when the name says nothing."""
        head, rest = split_name(name)
        if any(pattern.match(head) for pattern in self.anonymous):
            return None
        for item in self.classes:
            if any(pattern.fits(head, rest) for pattern in item.kernels):
                return item.name
        return None

    def of_op(self, name: str) -> str | None:
        """Class by the name of a launching op or autograd node."""
        name = name.removeprefix("autograd::engine::evaluate_function: ")
        for item in self.classes:
            if any(pattern.fullmatch(name) for pattern in item.ops):
                return item.name
        return None

    def is_matrix_convolution(self, kernel: str) -> bool:
        """Whether a convolution kernel's name shows that it computes on matrix units."""
        return any(pattern.search(kernel) for pattern in self.matrix_convolutions)

    def gemm_dtype(self, kernel: str) -> str:
        """Data type a GEMM kernel's name spells, or `unknown`."""
        for dtype, patterns in self.dtypes:
            if any(pattern.search(kernel) for pattern in patterns):
                return str(dtype)
        return "unknown"


@lru_cache(maxsize=4)
def load_kernel_table(tables_dir: Path) -> KernelTable:
    """The kernel class table of `rules/_tables`."""
    return KernelTable(tables_dir / _TABLE)


def _pattern(entry: Any) -> _Pattern:
    if isinstance(entry, str):
        return _Pattern(re.compile(entry), None)
    return _Pattern(re.compile(entry["head"]), re.compile(entry["args"]) if entry["args"] else None)


def split_name(name: str) -> tuple[str, str]:
    """The head of a kernel name and the rest of it (template arguments, parameters)."""
    if name.startswith("_Z"):
        return _unfold(name)
    if "(anonymous namespace)::" in name:
        name = name.replace("(anonymous namespace)::", "")
    if "<" not in name and "(" not in name:
        return (name.rsplit(" ", 1)[-1] if "::" in name else name), ""
    start, cut = 0, -1
    stack: list[str] = []
    for at, char in enumerate(name):
        if char in _PAIRS:
            if not stack and cut < start:
                cut = at
            stack.append(_PAIRS[char])
        elif stack and char == stack[-1] and not (char == ">" and name[at - 1] == "-"):
            stack.pop()
        elif char == " " and not stack and not name.startswith("[clone", at + 1):
            start, cut = at + 1, -1
    if cut < start:
        return name[start:], ""
    return name[start:cut], name[cut:]


def _unfold(name: str) -> tuple[str, str]:
    """Qualified name of an Itanium-mangled symbol, as far as its plain parts go."""
    at = 3 if name.startswith("_ZN") else 2
    while name[at : at + 1] in ("K", "V", "r"):
        at += 1
    parts = []
    while (found := re.match(r"(\d+)", name[at : at + 6])) is not None:
        at += len(found.group(1))
        part = name[at : at + int(found.group(1))]
        at += int(found.group(1))
        if not part.startswith("_GLOBAL__N"):
            parts.append(part)
    return ("::".join(parts), name[at:]) if parts else (name, "")
