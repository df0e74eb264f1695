"""What makes a rule file a good rule beyond being readable: examples, evidence, anchored patterns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autotune.rules.compile import LoadedRule
from autotune.rules.load import RuleSet, collect_rules
from autotune.rules.model import Rule
from autotune.rules.parse import Catalogue
from autotune.rules.partial import Gap
from autotune.rules.patterns import pattern_fault
from autotune.rules.problems import Problem
from autotune.rules.steps import ALLOWED_ACTIONS
from autotune.rules.truth import NOT_APPLICABLE
from autotune.rules.yaml_text import SourceFile, read_yaml


@dataclass
class LintReport:
    """All problems of the packs, errors first in each file's order of lines."""

    problems: list[Problem]
    rules: RuleSet = field(default_factory=RuleSet)
    checked: int = 0  # files that were judged for quality

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.level == "error"]


def lint(
    dirs: Sequence[Path],
    *,
    catalogue: Catalogue,
    root: Path | None = None,
    checked: Sequence[Path] | None = None,
) -> LintReport:
    """Check every rule of the packs; with `checked` only the rules of these folders for their quality."""
    rules, problems = collect_rules(dirs, catalogue=catalogue, root=root)
    problems += rules.warnings
    judged = [str(folder) for folder in (checked if checked is not None else dirs)]
    mine = [reading for reading in rules.readings if reading.pack in judged]
    for reading in mine:
        if reading.rule is not None:
            problems += check_quality(reading.rule, reading.source, reading.broken)
    for loaded in rules.rules:
        if loaded.pack in judged:
            problems += _unshown_exceptions(loaded)
    problems += _twins(rules.rules)
    for folder in dirs:
        problems += check_tables(folder, root)
    kept = sorted(dict.fromkeys(problems), key=lambda p: (p.path, p.line, p.column))
    return LintReport(kept, rules, len(mine))


def check_rule(loaded: LoadedRule) -> list[Problem]:
    """Quality of one rule."""
    return check_quality(loaded.rule, loaded.source)


def check_quality(rule: Rule, source: SourceFile, broken: Collection[str] = frozenset()) -> list[Problem]:
    """Quality of one rule; keys in `broken` are not judged, since what they should hold is not known."""
    problems: list[Problem] = []
    expects = {example.expect for example in rule.examples}
    if "examples" not in broken or not rule.examples:
        for wanted in ("match", "no-match"):
            if wanted not in expects:
                problems.append(source.at(("examples",), f"no example expects '{wanted}'", key=True))
        if "unknown" not in expects:
            message = "no example expects 'unknown' (a fact is missing)"
            problems.append(_warning(source, ("examples",), message))
    if not rule.evidence and "evidence" not in broken:
        problems.append(
            source.at(("evidence",), "a finding needs evidence: name the facts behind it", key=True)
        )
    for index, name in enumerate(rule.evidence):
        if name in rule.evidence[:index] and not isinstance(name, Gap):
            problems.append(source.at(("evidence", index), f"'{name}' stands here twice"))
    has_steps = any(fix.steps for fix in rule.fix)
    if has_steps and rule.parity is None and "parity" not in broken:
        problems.append(source.at(("fix",), "a fix with steps needs a parity tier", key=True))
    if rule.severity not in ("critical", "info") and not rule.gain and has_steps and "gain" not in broken:
        problems.append(_warning(source, ("fix",), "there is no gain: the fix cannot be ranked"))
    names = [example.name for example in rule.examples]
    for index, name in enumerate(names):
        if name in names[:index] and not isinstance(name, Gap):
            problems.append(source.at(("examples", index, "name"), f"two examples are named '{name}'"))
    problems += _check_fixes(rule, source)
    return problems


def _unshown_exceptions(loaded: LoadedRule) -> list[Problem]:
    """Lines of `none` and `unless` that no example shows at work."""
    silent = [
        {name: NOT_APPLICABLE if value is None else value for name, value in example.facts.items()}
        for example in loaded.rule.examples
        if example.expect == "no-match"
    ]
    problems = []
    for key, nodes in (("none", loaded.none), ("unless", loaded.unless)):
        for index, node in enumerate(nodes):
            if not any(node.truth(facts) is True for facts in silent):
                message = "no 'no-match' example shows this exception"
                place = loaded.source.at(("when", key, index), message)
                problems.append(loaded.source.problem(place.line, place.column, message, warning=True))
    return problems


def _check_fixes(rule: Rule, source: SourceFile) -> list[Problem]:
    problems: list[Problem] = []
    for i, fix in enumerate(rule.fix):
        if fix.applicability == "advice" and fix.steps:
            problems.append(source.at(("fix", i, "steps"), "advice has no steps"))
        for j, step in enumerate(fix.steps):
            if isinstance(step, Gap):
                continue
            actions = ALLOWED_ACTIONS.get(fix.surface)
            if actions is not None and step.action not in actions:
                message = f"{step.action} does not belong to the surface {fix.surface} ({', '.join(actions)})"
                problems.append(source.at(("fix", i, "steps", j, "action"), message))
    return problems


def check_tables(folder: Path, root: Path | None = None) -> list[Problem]:
    """Tables of a pack parse, and their kernel patterns are no bare substrings."""
    problems: list[Problem] = []
    for path in sorted((folder / "_tables").glob("*.yaml")):
        if not path.is_file():
            continue  # a pipe may have no end
        shown = str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else str(path)
        try:
            source = read_yaml(shown, path.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(shown, 1, 1, f"the file cannot be read ({type(error).__name__})"))
            continue
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
