"""What is wrong with a rule file, and where: one line a compiler would print, the source line, a caret."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from autotune.errors import InputError

_WIDEST = 160  # characters of a source line that are shown


@dataclass(frozen=True, slots=True)
class Problem:
    """One error or warning; line and column count from 1."""

    path: str
    line: int
    column: int
    message: str
    level: Literal["error", "warning"] = "error"
    source_line: str = ""

    def __str__(self) -> str:
        head = f"{self.path}:{self.line}:{self.column}: {self.level}: {self.message}"
        if not self.source_line.strip():
            return head
        line, before = self.source_line.replace("\t", " "), max(self.column - 1, 0)
        if len(line) > _WIDEST:  # only what is around the place
            start = max(0, min(before - _WIDEST // 2, len(line) - _WIDEST))
            cut = line[start : start + _WIDEST]
            line = ("..." if start else "") + cut + ("..." if start + _WIDEST < len(line) else "")
            before += (3 if start else 0) - start
        return f"{head}\n{self.line:6d} | {line}\n{'':6s} | {'':{before}s}^"


class RuleFaults(InputError):
    """All errors of all rule files at once."""

    code = "rules-broken"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems, key=lambda p: (p.path, p.line, p.column))
        count = len(self.problems)
        super().__init__(f"{count} error{'s' if count != 1 else ''} in rule files")

    def __str__(self) -> str:
        return "\n".join([*(str(problem) for problem in self.problems), self.what])


def did_you_mean(word: str, known: Iterable[str], *, join: str = " — did you mean {}?") -> str:
    """A suggestion for a mistyped word, or nothing."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if not close and "." in word:  # right name in the wrong group
        last = word.rsplit(".", 1)[1]
        close = [name for name in names if name.rsplit(".", 1)[-1] == last][:1]
    return join.format(f"'{close[0]}'") if close else ""
