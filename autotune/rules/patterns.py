"""Regular expressions over names of calls and kernels: what makes one wrong, too broad or too slow."""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from functools import lru_cache
from typing import Any

from autotune.rules.partial import Gap

_ANCHORS = ("^", "\\A", "\\b", "(^|", "(?:^|", "(?<!", "\\.")
_PARSER = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_GROUPS = ("SUBPATTERN", "ASSERT", "ASSERT_NOT", "ATOMIC_GROUP")
_LONGEST = 300  # characters
_FEW = 9
_MOST_ENDLESS = 3
_MOST_OPTIONAL = 8


def pattern_fault(pattern: str, *, anchored: bool = True) -> str:
    """What is wrong with a regular expression over names; empty when nothing is.

    `anchored` patterns come from rules: they must hold on to an end of the name and be found in no time.
    """
    return "" if isinstance(pattern, Gap) else _fault(pattern, anchored)


@lru_cache(maxsize=1000)
def _fault(pattern: str, anchored: bool) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the interpreter's advice on odd but legal spelling
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"'{pattern}' is no regular expression ({error})"
    if anchored and _is_slow(pattern):
        return f"'{pattern}' repeats what repeats, or too often: looking for it could take for ever"
    if anchored and not (pattern.startswith(_ANCHORS) or pattern.endswith("$")):
        return f"'{pattern}' matches inside any name; anchor it with ^, $ or \\b"
    if re.fullmatch(pattern, "") or re.search(pattern, "\x00"):
        return f"'{pattern}' matches every name"
    return ""


def _is_slow(pattern: str) -> bool:
    """Whether a search may have to try very many ways: choices inside a repetition, or many repetitions."""
    if len(pattern) > _LONGEST:
        return True
    endless = optional = 0
    todo: list[tuple[Any, bool]] = [(_PARSER.parse(pattern), False)]
    while todo:
        parsed, inside = todo.pop()
        for operator, argument in parsed:
            name = str(operator)
            if name in _REPEATS and argument[0] != argument[1]:
                if inside:
                    return True
                endless += argument[1] > _FEW
                optional += 1
                todo.append((argument[2], argument[1] > 1))
            elif name in _REPEATS:
                todo.append((argument[2], inside or argument[1] > _FEW))
            elif name == "BRANCH":
                if inside:
                    return True
                todo += [(branch, inside) for branch in argument[1]]
            elif name in _GROUPS:
                todo.append((argument[-1] if isinstance(argument, tuple) else argument, inside))
    return endless > _MOST_ENDLESS or optional > _MOST_OPTIONAL
