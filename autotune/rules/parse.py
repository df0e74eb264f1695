"""From the text of a condition to a checked tree: names, types and units are compared with the catalogue.

The grammar is a part of Python's: facts (`group.name`), numbers, strings, true/false/none, lists,
`== != < <= > >= in not in`, `is known`, `and or not`, `+ - * /`, `min max`, parentheses.
"""

from __future__ import annotations

import ast
import re
import warnings

from autotune.rules.expression import Node
from autotune.rules.reader import WORDS, Catalogue, CatalogueEntry, Flaw, Reader, Stop, Typed, offset_of

__all__ = ["Catalogue", "CatalogueEntry", "Flaw", "parse_condition", "parse_number"]

MAX_LENGTH = 600  # characters; keeps hostile nesting away from the interpreter's own parser
_ODD_NUMBER = re.compile(r"\d[a-zA-Z]")
_NOT_PYTHON = {"&&": "and", "||": "or", "!(": "not (", "=>": ">=", "=<": "<=", "<>": "!="}


def parse_condition(text: str, catalogue: Catalogue) -> tuple[Node | None, list[Flaw]]:
    """A condition; None when it has errors."""
    typed, flaws = _parse(text, catalogue)
    if typed is not None and typed.kind != "bool":
        hint = "compare it with something" if typed.kind != "none" else "write a comparison"
        flaws.append(Flaw(0, f"a condition must be true or false, this is {WORDS[typed.kind]}; {hint}"))
    return _result(typed, flaws)


def parse_number(text: str, catalogue: Catalogue) -> tuple[Node | None, list[Flaw], str]:
    """An arithmetic expression and its unit; None when it has errors."""
    typed, flaws = _parse(text, catalogue)
    if typed is not None and typed.kind != "number":
        flaws.append(Flaw(0, f"expected a number, this is {WORDS[typed.kind]}"))
    return *_result(typed, flaws), typed.unit if typed is not None else ""


def _result(typed: Typed | None, flaws: list[Flaw]) -> tuple[Node | None, list[Flaw]]:
    broken = typed is None or any(flaw.level == "error" for flaw in flaws)
    return (None if broken or typed is None else typed.node), flaws


def _parse(text: str, catalogue: Catalogue) -> tuple[Typed | None, list[Flaw]]:
    if not text.strip():
        return None, [Flaw(0, "the expression is empty")]
    if len(text) > MAX_LENGTH:
        return None, [Flaw(0, f"the expression is longer than {MAX_LENGTH} characters; split it")]
    lead = len(text) - len(text.lstrip())
    source = text.strip().replace("\n", " ")
    if "\\" in source:
        return None, [Flaw(lead + source.index("\\"), "a backslash has no place in an expression")]
    try:
        tree = _syntax_tree(source)
        parser = Reader(source, catalogue)
        return parser.read(tree.body), [Flaw(f.offset + lead, f.message, f.level) for f in parser.flaws]
    except SyntaxError as error:
        return None, [_syntax_flaw(source, error, lead)]
    except Stop as stop:
        offset = stop.at if isinstance(stop.at, int) else offset_of(source, stop.at)
        kept = [Flaw(f.offset + lead, f.message, f.level) for f in parser.flaws]
        return None, [*kept, Flaw(offset + lead, stop.message)]
    except (RecursionError, MemoryError, ValueError, OverflowError):
        return None, [Flaw(lead, "the expression is too deeply nested or holds a number out of range")]


def _syntax_tree(source: str) -> ast.Expression:
    if not _ODD_NUMBER.search(source):
        return ast.parse(source, mode="eval")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the interpreter's advice on odd but legal spelling such as 1or 2
        return ast.parse(source, mode="eval")


def _syntax_flaw(source: str, error: SyntaxError, lead: int) -> Flaw:
    for wrong, right in _NOT_PYTHON.items():
        if wrong in source:
            return Flaw(lead + source.index(wrong), f"'{wrong}' is not known here, write '{right}'")
    offset = min(max((error.offset or 1) - 1, 0), max(len(source) - 1, 0))
    if "%" in source:
        return Flaw(lead + source.index("%"), "write shares as fractions: 0.2, not 20%")
    bare = source.replace("==", "").replace("!=", "").replace("<=", "").replace(">=", "")
    if "=" in bare:
        return Flaw(lead + offset, "'=' does not compare, write '=='")
    return Flaw(lead + offset, f"this is not an expression ({error.msg})")
