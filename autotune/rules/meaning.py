"""Whether the parts of a readable rule make sense: values of facts, bounds, and the steps of its fixes."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

from autotune.rules.expression import Arithmetic, Node, fact_names, walk
from autotune.rules.parse import Flaw
from autotune.rules.partial import Gap
from autotune.rules.patterns import pattern_fault
from autotune.rules.problems import did_you_mean
from autotune.rules.reader import CatalogueEntry
from autotune.rules.steps import (
    AtSite,
    Install,
    RemoveFlag,
    Render,
    SetCount,
    SetEnv,
    SetFlag,
    SetKeyword,
    Step,
    UseShim,
)

Place: TypeAlias = tuple[int | str, ...]

PLACEHOLDERS = ("original", "receiver", "function", "arguments", "target", "statement")
_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)?)\}")
_TEMPLATE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_MUST_HOLD = {
    "wrap_argument": "{original}",
    "wrap_call": "{original}|{arguments}|{receiver}",
    "wrap_statement": "{statement}",
    "wrap_block": "{statement}",
}
_MODULE = re.compile(r"autotune_[a-z0-9_]+")
_SHIM = re.compile(r"shims/[a-z0-9_]+\.py\.j2")
_FLAG = re.compile(r"(--?)?[A-Za-z][\w.-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VERSION = r"(==|>=|<=|~=|!=|<|>)\s*[\w.*+!-]+"
_PACKAGE = re.compile(rf"[A-Za-z0-9][\w.-]*(\[[\w, -]+\])?\s*({_VERSION}(\s*,\s*{_VERSION})*)?")
_LARGEST_RATIO = 50


def value_fault(entry: CatalogueEntry, value: object) -> str:
    """Why a fact cannot have this value; empty when it can."""
    kinds: dict[str, tuple[type, ...]] = {
        "bool": (bool,),
        "int": (int, float),
        "float": (int, float),
        "list": (list,),
        "str": (str,),
    }
    words = {"bool": "true or false", "int": "a whole number", "float": "a number", "list": "a list"}
    if value is None or isinstance(value, Gap):
        return ""
    right = isinstance(value, kinds[entry.type]) and isinstance(value, bool) is (entry.type == "bool")
    if isinstance(value, int | float) and right:
        right = math.isfinite(value) and (entry.type != "int" or value == int(value))
    if not right:
        return f"{entry.name} is {words.get(entry.type, 'a text')}, not {str(value)[:40]!r}"
    if entry.choices and value not in entry.choices:
        hint = did_you_mean(str(value), entry.choices)
        return f"'{value}' is not one of {', '.join(entry.choices)}{hint}"
    return ""


def constant_flaw(node: Node) -> str:
    """A condition that no run can change; empty when it reads a fact."""
    return "" if fact_names(node) else "this reads no fact, so its answer is the same for every run"


def bound_flaws(node: Node, unit: str, *, share: bool) -> list[Flaw]:
    """What is wrong with the bound of a gain."""
    flaws = [
        Flaw(0, "this divides by zero")
        for part in walk(node)
        if isinstance(part, Arithmetic) and part.operator == "/" and _constant(part.right) == 0
    ]
    value = _constant(node)
    if share:
        if unit not in ("", "frac", "ratio"):
            flaws.append(Flaw(0, f"a share of the step has no unit, this is a number of '{unit}'"))
        elif value is not None and not 0 < value < 1:
            flaws.append(Flaw(0, f"a share of the step lies between 0 and 1, this is {value:g}"))
    elif unit not in ("", "frac", "ratio", "count"):
        flaws.append(Flaw(0, f"a ratio has no unit, this is a number of '{unit}'"))
    elif value is not None and not 1 < value <= _LARGEST_RATIO:
        message = f"a ratio is the old step time over the new one, from 1 to {_LARGEST_RATIO}"
        flaws.append(Flaw(0, f"{message}, this is {value:g}"))
    return flaws


def _constant(node: Node) -> float | None:
    if fact_names(node):
        return None
    value = node.operand({})
    return float(value) if isinstance(value, int | float) else None


def step_faults(step: Step) -> Iterator[tuple[Place, str]]:
    """What is wrong with one step of a fix, beside its form; places are relative to the step."""
    if isinstance(step, AtSite | SetCount):
        for index, pattern in enumerate(step.callees):
            if fault := pattern_fault(pattern):
                yield ("callees", index), fault
    if isinstance(step, SetCount):
        if step.names and (fault := pattern_fault(f"^({step.names})$")):
            yield ("names",), fault
    elif isinstance(step, AtSite):
        yield from _site_faults(step)
    elif isinstance(step, UseShim):
        if _is_wrong(_SHIM, step.template):
            yield ("template",), "a shim's template is written shims/NAME.py.j2"
        if _is_wrong(_MODULE, step.module):
            yield ("module",), "a shim's module is written autotune_NAME"
    elif isinstance(step, Render):
        if step.template.startswith("/") or ".." in step.template.split("/"):
            yield ("template",), "a template lies in the folder of templates"
    elif isinstance(step, SetFlag | RemoveFlag):
        if _is_wrong(_FLAG, step.name):
            yield ("name",), f"{step.name!r} is no name of a flag"
        if isinstance(step, SetFlag) and "\n" in step.value:
            yield ("value",), "the value of a flag is one line"
    elif isinstance(step, SetEnv):
        if _is_wrong(_VARIABLE, step.name):
            yield ("name",), f"{step.name!r} is no name of a variable"
        if step.value is not None and "\n" in step.value:
            yield ("value",), "the value of a variable is one line"
    elif isinstance(step, Install):
        for index, package in enumerate(step.packages):
            if _is_wrong(_PACKAGE, package):
                yield ("packages", index), f"{package!r} is no package name with an optional version"


def _is_wrong(pattern: re.Pattern[str], text: str) -> bool:
    return not isinstance(text, Gap) and not pattern.fullmatch(_TEMPLATE.sub("x", text))


def _site_faults(step: AtSite) -> Iterator[tuple[Place, str]]:
    if isinstance(step, SetKeyword):
        if not (step.keywords or step.remove):
            yield ("action",), "set_keyword needs keywords, or names to remove"
        for name, value in step.keywords.items():
            if not name.isidentifier():
                yield ("keywords", name), f"{name!r} is no name of an argument"
            yield from ((("keywords", name), fault) for fault in _code_faults(value, "eval"))
        return
    template = getattr(step, "template", None)
    if not isinstance(template, str) or isinstance(template, Gap):
        return
    action = str(getattr(step, "action", ""))
    mode = "eval" if action in ("wrap_argument", "wrap_call") else "exec"
    faults = list(_code_faults(template, mode))
    yield from ((("template",), fault) for fault in faults)
    wanted = _MUST_HOLD.get(action)
    if wanted and not faults and not any(word in template for word in wanted.split("|")):
        yield ("template",), f"{action} needs {wanted.replace('|', ' or ')} in its template"
    missing = getattr(step, "missing", None)
    if isinstance(missing, str):
        yield from ((("missing",), fault) for fault in _code_faults(missing, "eval"))


def _code_faults(text: str, mode: str) -> Iterator[str]:
    if isinstance(text, Gap):
        return
    for found in _PLACEHOLDER.finditer(_TEMPLATE.sub("", text)):
        name = found[1].partition(".")[0]
        if name not in (*PLACEHOLDERS, "argument") or (name == "argument") != ("." in found[1]):
            hint = did_you_mean(name, PLACEHOLDERS)
            known = ", ".join(f"{{{word}}}" for word in PLACEHOLDERS)
            yield f"the editor does not fill {found[0]}{hint or f' (it fills {known}, {{argument.NAME}})'}"
            return
    source = _PLACEHOLDER.sub("x", _TEMPLATE.sub("x", text)).strip()
    if "{%" not in source and (
        fault := _syntax_fault(source, mode)
    ):  # else which lines stand depends on facts
        yield fault


@lru_cache(maxsize=1000)
def _syntax_fault(source: str, mode: str) -> str:
    try:
        ast.parse(source, mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        kind = "is no Python expression" if mode == "eval" else "is no line of Python"
        return f"this {kind} ({getattr(error, 'msg', type(error).__name__)})"
    return ""
