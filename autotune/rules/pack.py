"""What holds the files of a pack together: the rules they name, and the shims that lie beside them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from autotune.data import data_dir
from autotune.rules.compile import Reading
from autotune.rules.partial import Gap
from autotune.rules.problems import Problem, did_you_mean
from autotune.rules.steps import Render, UseShim

_LARGEST_SHIM = 100_000  # characters
_ORDERS = ("after", "explained_by")  # chains of these must end


def own_shims(reading: Reading, folder: Path) -> tuple[dict[str, str], list[Problem]]:
    """Texts of the pack's own templates that a rule uses, by name; a name may also be a built-in template."""
    shims: dict[str, str] = {}
    problems: list[Problem] = []
    for i, fix in enumerate(reading.rule.fix if reading.rule is not None else ()):
        for j, step in enumerate(fix.steps):
            if not isinstance(step, UseShim | Render) or isinstance(step.template, Gap):
                continue
            name = step.template
            if name.startswith("/") or ".." in name.split("/"):
                continue  # refused already
            path = folder / "templates" / name
            fault = ""
            if isinstance(step, UseShim) and path.is_file():
                text, fault = _read(path)
                shims[name] = text
            elif not (data_dir("templates") / name).is_file():
                fault = f"there is no template {name}; a pack keeps its own in {folder / 'templates'}"
            if fault:
                problems.append(reading.source.at(("fix", i, "steps", j, "template"), fault))
    return shims, problems


def _read(path: Path) -> tuple[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return "", f"{path} cannot be read ({type(error).__name__})"
    if len(text) > _LARGEST_SHIM:
        return "", f"{path} is too large for a small module ({len(text):,} characters)"
    return text, ""


def check_references(readings: Sequence[Reading], known: Collection[str]) -> list[Problem]:
    """Rules that are named and not there, named twice, or name each other in a circle."""
    problems = []
    rules = [(r, r.rule) for r in readings if r.rule is not None]
    by_id = {rule.id: rule for _, rule in rules if not isinstance(rule.id, Gap)}
    names = {key: {rule_id: getattr(rule, key) for rule_id, rule in by_id.items()} for key in _ORDERS}
    for reading, rule in rules:
        source = reading.source
        for key in (*_ORDERS, "excludes", "together_with"):
            others: list[str] = getattr(rule, key)
            for index, other in enumerate(others):
                if isinstance(other, Gap):
                    continue
                place = (key, index)
                if other == rule.id:
                    problems.append(source.at(place, f"{key} names the rule itself"))
                elif other not in known:
                    message = f"{key} names the rule '{other}', which does not exist"
                    problems.append(source.at(place, message + did_you_mean(other, known)))
                elif other in others[:index]:
                    problems.append(source.at(place, f"{key} names '{other}' twice"))
                elif key == "excludes" and other in rule.together_with:
                    problems.append(source.at(place, f"together_with names '{other}' as well"))
                elif key in _ORDERS and rule.id in _reached(other, names[key]):
                    problems.append(source.at(place, f"{key} goes in a circle: '{other}' leads back here"))
    return problems


def _reached(start: str, names: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Every rule that the names lead to from `start`."""
    seen, todo = {start}, [start]
    while todo:
        for other in names.get(todo.pop(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
                yield other
