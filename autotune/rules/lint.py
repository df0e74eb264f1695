"""What makes a rule file a good rule beyond being readable: examples, evidence, anchored patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autotune.rules.compile import LoadedRule
from autotune.rules.load import RuleSet, collect_rules
from autotune.rules.parse import Catalogue
from autotune.rules.problems import Problem
from autotune.rules.steps import ALLOWED_ACTIONS, AtSite, Render, UseShim
from autotune.rules.yaml_text import SourceFile, read_yaml

_ANCHORS = ("^", "\\A", "\\b", "(^|", "(?:^|", "(?<!", "\\.")


@dataclass
class LintReport:
    """All problems of the packs, errors first in each file's order of lines."""

    problems: list[Problem]
    rules: RuleSet = field(default_factory=RuleSet)

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.level == "error"]


def lint(
    dirs: Sequence[Path],
    *,
    catalogue: Catalogue,
    root: Path | None = None,
    templates_dir: Path | None = None,
    checked: Sequence[Path] | None = None,
) -> LintReport:
    """Check every rule of the packs; with `checked` only the rules of these folders are judged for quality.

    `templates_dir` lets the shims that rules name be checked for existence.
    """
    rules, problems = collect_rules(dirs, catalogue=catalogue, root=root)
    problems += rules.warnings
    judged = {str(folder) for folder in (checked if checked is not None else dirs)}
    mine = [loaded for loaded in rules.rules if loaded.pack in judged]
    for loaded in mine:
        problems += check_rule(loaded, catalogue, templates_dir)
    problems += _twins(rules.rules)
    for folder in dirs:
        problems += check_tables(folder, root)
    return LintReport(sorted(problems, key=lambda p: (p.path, p.line, p.column)), rules)


def check_rule(loaded: LoadedRule, catalogue: Catalogue, templates_dir: Path | None = None) -> list[Problem]:
    """Quality of one rule."""
    rule, source = loaded.rule, loaded.source
    problems: list[Problem] = []
    expects = {example.expect for example in rule.examples}
    for wanted in ("match", "no-match"):
        if wanted not in expects:
            problems.append(source.at(("examples",), f"no example expects '{wanted}'", key=True))
    if "unknown" not in expects:
        problems.append(_warning(source, ("examples",), "no example expects 'unknown' (a fact is missing)"))
    if not rule.evidence:
        problems.append(
            source.at(("evidence",), "a finding needs evidence: name the facts behind it", key=True)
        )
    if any(fix.steps for fix in rule.fix) and rule.parity is None:
        problems.append(source.at(("fix",), "a fix with steps needs a parity tier", key=True))
    if rule.severity not in ("critical", "info") and not rule.gain and any(fix.steps for fix in rule.fix):
        problems.append(_warning(source, ("fix",), "there is no gain: the fix cannot be ranked"))
    names = [example.name for example in rule.examples]
    for index, name in enumerate(names):
        if name in names[:index]:
            problems.append(source.at(("examples", index, "name"), f"two examples are named '{name}'"))
    problems += _check_fixes(loaded, templates_dir)
    return problems


def _check_fixes(loaded: LoadedRule, templates_dir: Path | None) -> list[Problem]:
    problems: list[Problem] = []
    source = loaded.source
    for i, fix in enumerate(loaded.rule.fix):
        if fix.applicability == "advice" and fix.steps:
            problems.append(source.at(("fix", i, "steps"), "advice has no steps"))
        for j, step in enumerate(fix.steps):
            if step.action not in ALLOWED_ACTIONS[fix.surface]:
                allowed = ", ".join(ALLOWED_ACTIONS[fix.surface])
                message = f"{step.action} does not belong to the surface {fix.surface} ({allowed})"
                problems.append(source.at(("fix", i, "steps", j, "action"), message))
            if isinstance(step, AtSite):
                for k, pattern in enumerate(step.callees):
                    fault = pattern_fault(pattern)
                    if fault:
                        problems.append(source.at(("fix", i, "steps", j, "callees", k), fault))
            if not isinstance(step, UseShim | Render) or templates_dir is None:
                continue
            if not (templates_dir / step.template).is_file():
                message = f"there is no template {step.template}"
                problems.append(source.at(("fix", i, "steps", j, "template"), message))
    return problems


def pattern_fault(pattern: str, *, anchored: bool = True) -> str:
    """What is wrong with a regular expression over names; empty when nothing is."""
    try:
        re.compile(pattern)
    except re.error as error:
        return f"'{pattern}' is not a regular expression ({error})"
    if anchored and not (pattern.startswith(_ANCHORS) or pattern.endswith("$")):
        return f"'{pattern}' matches inside any name; anchor it with ^, $ or \\b"
    if re.fullmatch(pattern, "") or re.search(pattern, "\x00"):
        return f"'{pattern}' matches every name"
    return ""


def check_tables(folder: Path, root: Path | None = None) -> list[Problem]:
    """Tables of a pack parse, and their kernel patterns are no bare substrings."""
    problems: list[Problem] = []
    for path in sorted((folder / "_tables").glob("*.yaml")):
        shown = str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else str(path)
        source = read_yaml(shown, path.read_text(encoding="utf-8"))
        problems += [p for p in source.problems if "anchors and aliases" not in p.message]
        for number, pattern in _kernel_patterns(source.data):
            fault = pattern_fault(pattern, anchored=False) or _bare(pattern)
            if fault:
                line = next(
                    (i for i, text in enumerate(source.text.split("\n"), 1) if pattern in text), number
                )
                problems.append(source.problem(line, 1, fault))
    return problems


def _bare(pattern: str) -> str:
    return f"'{pattern}' would match anywhere in a name" if pattern.startswith((".*", "(.*")) else ""


def _kernel_patterns(data: object) -> Iterable[tuple[int, str]]:
    classes = data.get("classes") if isinstance(data, dict) else None
    if not isinstance(classes, list):
        return
    for entry in classes:
        for item in entry.get("kernels", []) if isinstance(entry, dict) else []:
            pattern = item.get("head") if isinstance(item, dict) else item
            if isinstance(pattern, str):
                yield 1, pattern


def _warning(source: SourceFile, location: tuple[int | str, ...], message: str) -> Problem:
    place = source.at(location, message, key=True)
    return source.problem(place.line, place.column, message, warning=True)


def _twins(rules: Iterable[LoadedRule]) -> list[Problem]:
    """Rules with the same condition."""
    seen: dict[tuple[frozenset[str], ...], LoadedRule] = {}
    problems: list[Problem] = []
    for loaded in rules:
        when = loaded.rule.when
        key = tuple(
            frozenset(" ".join(line.split()) for line in lines)
            for lines in (when.all, when.any, when.none, when.unless)
        )
        if key in seen:
            message = f"the same condition as the rule {seen[key].id}"
            problems.append(loaded.source.at(("when",), message, key=True))
        seen.setdefault(key, loaded)
    return problems
