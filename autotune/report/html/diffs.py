"""Unified diffs as lines that can be coloured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from autotune.report.html.view import DiffFile, DiffLine

_MOST_LINES = 400  # of one file; the whole diff is what `autotune apply` shows

Sign = Literal["+", "-", " ", "@"]
_SIGNS: dict[str, Sign] = {"+": "+", "-": "-", "@": "@"}


def split_diff(text: str) -> list[DiffFile]:
    """The files of a diff as `git diff` writes it."""
    parts: list[list[str]] = []
    for line in text.split("\n"):
        if line.startswith("diff --git "):
            parts.append([])
        if parts:
            parts[-1].append(line)
    return [_from_git(part) for part in parts]


def _from_git(lines: Sequence[str]) -> DiffFile:
    body = next((at for at, line in enumerate(lines) if line.startswith("--- ")), len(lines))
    new = any(line.startswith("new file mode") for line in lines[:body])
    target = next((line[4:] for line in lines[body:] if line.startswith("+++ ")), "")
    name = target.removeprefix("b/").split("\t")[0] or lines[0].rpartition(" b/")[2]
    return file_of(name, lines[body:], new=new)


def file_of(name: str, lines: Sequence[str], *, new: bool = False) -> DiffFile:
    """One file from the lines of its unified diff, `---` and `+++` included."""
    body = list(lines[2:]) if lines[:1] and lines[0].startswith("--- ") else list(lines)
    while body and not body[-1]:
        body.pop()
    shown = [DiffLine(_SIGNS.get(line[:1], " "), line if line[:1] == "@" else line[1:]) for line in body]
    return DiffFile(
        name=name,
        added=sum(line.sign == "+" for line in shown),
        removed=sum(line.sign == "-" for line in shown),
        lines=shown[:_MOST_LINES],
        new=new,
        left_out=max(0, len(shown) - _MOST_LINES),
    )
