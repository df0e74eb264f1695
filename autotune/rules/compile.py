"""One rule file from its text to a checked rule: expressions parsed, names and texts checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.rules import templates
from autotune.rules.expression import Node
from autotune.rules.model import FixWay, Rule
from autotune.rules.parse import Catalogue, Flaw, parse_condition, parse_number
from autotune.rules.problems import Problem, did_you_mean
from autotune.rules.shape import validate
from autotune.rules.yaml_text import SourceFile, read_yaml

_Location = tuple[int | str, ...]


@dataclass(frozen=True)
class LoadedRule:
    """A rule with its expressions parsed; `None` stands where a fix applies always."""

    rule: Rule
    source: SourceFile
    pack: str  # folder the rule came from
    all: tuple[Node, ...]
    any: tuple[Node, ...]
    none: tuple[Node, ...]
    unless: tuple[Node, ...]
    gains: tuple[tuple[Node | None, Node], ...]  # beside rule.gain: whether it applies, and the bound
    applies: tuple[Node | None, ...]  # beside rule.fix

    @property
    def id(self) -> str:
        return self.rule.id


def load_text(
    text: str, path: str, *, catalogue: Catalogue, pack: str = ""
) -> tuple[LoadedRule | None, list[Problem]]:
    """A rule from its text."""
    source = read_yaml(path, text)
    rule = validate(source) if source.root is not None else None
    if rule is None:
        if isinstance(source.data, dict):
            source.problems += _Compiler(source, catalogue).despite_errors(source.data)
        return None, source.problems
    compiler = _Compiler(source, catalogue)
    loaded = LoadedRule(
        rule=rule,
        source=source,
        pack=pack,
        all=compiler.conditions(rule.when.all, "all"),
        any=compiler.conditions(rule.when.any, "any"),
        none=compiler.conditions(rule.when.none, "none"),
        unless=compiler.conditions(rule.when.unless, "unless"),
        gains=compiler.gains(rule),
        applies=tuple(compiler.applies(fix, index) for index, fix in enumerate(rule.fix)),
    )
    for index, fix in enumerate(rule.fix):
        compiler.predictions(fix, index)
    compiler.names(rule)
    compiler.texts(rule)
    if not (rule.when.all or rule.when.any):
        compiler.problems.append(
            source.at(("when",), "when needs at least one line under all or any", key=True)
        )
    problems = [*source.problems, *compiler.problems]
    return (None if any(p.level == "error" for p in problems) else loaded), problems


class _Compiler:
    """Parses every expression and checks every text of one rule."""

    def __init__(self, source: SourceFile, catalogue: Catalogue) -> None:
        self.source = source
        self.catalogue = catalogue
        self.problems: list[Problem] = []

    def _flaws(self, flaws: list[Flaw], location: _Location) -> None:
        for flaw in flaws:
            message = flaw.message
            node = self.source.node(location)
            if flaw.level == "error" and node is not None:
                if self.source.rest_of_line(node).lstrip().startswith("#"):
                    message += "; what follows '#' is a comment in YAML, quote the line if it belongs to it"
                elif getattr(node, "style", None) in ("|", ">"):
                    message += "; a text that starts with '>' or '|' is a block in YAML, quote it"
            problem = self.source.at(location, message, offset=flaw.offset)
            if flaw.level == "warning":
                problem = self.source.problem(problem.line, problem.column, message, warning=True)
            self.problems.append(problem)

    def _parse(
        self,
        text: str,
        location: _Location,
        parse: Callable[[str, Catalogue], tuple[Node | None, list[Flaw]]],
    ) -> Node | None:
        node, flaws = parse(text, self.catalogue)
        if flaws:
            self._flaws(flaws, location)
        return node

    def despite_errors(self, data: dict[str, object]) -> list[Problem]:
        """What can be said of conditions and names although the file as a whole is no valid rule."""
        when = data.get("when")
        for key in ("all", "any", "none", "unless"):
            lines = when.get(key) if isinstance(when, dict) else None
            for index, line in enumerate(lines if isinstance(lines, list) else []):
                if isinstance(line, str):
                    self._parse(line, ("when", key, index), parse_condition)
        names = data.get("evidence")
        for index, name in enumerate(names if isinstance(names, list) else []):
            if isinstance(name, str) and name not in self.catalogue:
                message = f"unknown fact '{name}'{did_you_mean(name, self.catalogue)}"
                self.problems.append(self.source.at(("evidence", index), message))
        return self.problems

    def conditions(self, lines: list[str], key: str) -> tuple[Node, ...]:
        parsed = (self._parse(line, ("when", key, i), parse_condition) for i, line in enumerate(lines))
        return tuple(node for node in parsed if node is not None)

    def gains(self, rule: Rule) -> tuple[tuple[Node | None, Node], ...]:
        pairs = []
        for index, way in enumerate(rule.gain):
            key = "ratio" if way.ratio is not None else "step_time_saved_frac"
            place: _Location = ("gain", index, key)
            node = self._parse(way.ratio or way.step_time_saved_frac or "", place, parse_number)
            condition = None
            if way.applies_if is not None:
                condition = self._parse(way.applies_if, ("gain", index, "applies_if"), parse_condition)
            if node is not None:
                pairs.append((condition, node))
        return tuple(pairs)

    def applies(self, fix: FixWay, index: int) -> Node | None:
        if fix.applies_if is None:
            return None
        return self._parse(fix.applies_if, ("fix", index, "applies_if"), parse_condition)

    def predictions(self, fix: FixWay, index: int) -> None:
        for number, line in enumerate(fix.requires):
            self._parse(line, ("fix", index, "requires", number), parse_condition)
        for name, value in fix.predicts.items():
            other = value[1:] if isinstance(value, str) and value.startswith("=") else name
            for fact in {name, other} - set(self.catalogue):
                message = f"unknown fact '{fact}'{did_you_mean(fact, self.catalogue)}"
                self.problems.append(self.source.at(("fix", index, "predicts", name), message, key=True))

    def names(self, rule: Rule) -> None:
        places: list[tuple[str, _Location, bool]] = [
            (name, ("evidence", i), False) for i, name in enumerate(rule.evidence)
        ]
        places += [
            (name, ("examples", i, "facts", name), True)
            for i, example in enumerate(rule.examples)
            for name in example.facts
        ]
        for name, location, key in places:
            if name not in self.catalogue:
                message = f"unknown fact '{name}'{did_you_mean(name, self.catalogue)}"
                self.problems.append(self.source.at(location, message, key=key))

    def texts(self, rule: Rule) -> None:
        if templates.is_template(rule.title):
            self.problems.append(self.source.at(("title",), "a title is a plain text, facts go into message"))
        for text, location in rule_texts(rule):
            if templates.is_template(text):
                for fault in templates.check(text, self.catalogue)[1]:
                    self.problems.append(self.source.at(location, fault))


def rule_texts(rule: Rule) -> list[tuple[str, _Location]]:
    """Every text of a rule that may hold a template, with its place."""
    texts: list[tuple[str, _Location]] = [
        (rule.message, ("message",)),
        (rule.caution, ("caution",)),
    ]
    texts += [(way.basis, ("gain", i, "basis")) for i, way in enumerate(rule.gain)]
    for i, fix in enumerate(rule.fix):
        texts.append((fix.title, ("fix", i, "title")))
        for j, step in enumerate(fix.steps):
            dumped = step.model_dump(exclude_none=True)
            texts += [
                (text, ("fix", i, "steps", j, *place))
                for key, value in dumped.items()
                for text, place in _inner_texts(value, (key,))
            ]
    return texts


def _inner_texts(value: object, location: _Location) -> list[tuple[str, _Location]]:
    if isinstance(value, str):
        return [(value, location)]
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in _inner_texts(inner, (*location, key))]
    if isinstance(value, list):
        return [pair for i, inner in enumerate(value) for pair in _inner_texts(inner, (*location, i))]
    return []
