"""One rule file from its text to a checked rule: expressions parsed, names and texts checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.rules import templates
from autotune.rules.expression import Node
from autotune.rules.meaning import bound_flaws, constant_flaw, step_faults, value_fault
from autotune.rules.model import FixWay, Rule
from autotune.rules.parse import Catalogue, Flaw, parse_condition, parse_number
from autotune.rules.partial import Gap, partial_rule
from autotune.rules.problems import Problem, did_you_mean
from autotune.rules.shape import validate
from autotune.rules.yaml_text import SourceFile, read_yaml

_Location = tuple[int | str, ...]
MAX_TITLE = 120  # characters
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*:(?!\s)")


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
    shims: Mapping[str, str] = field(default_factory=dict)  # texts of the pack's own templates

    @property
    def id(self) -> str:
        return self.rule.id


@dataclass(frozen=True)
class Reading:
    """What one file gave: a checked rule, or its problems and whatever could be read all the same."""

    source: SourceFile
    rule: Rule | None  # with gaps where `broken` names the key
    broken: frozenset[str]  # top keys that do not have the form of a rule
    loaded: LoadedRule | None
    problems: list[Problem]
    pack: str = ""


def load_text(
    text: str, path: str, *, catalogue: Catalogue, pack: str = ""
) -> tuple[LoadedRule | None, list[Problem]]:
    """A rule from its text."""
    reading = read_rule(text, path, catalogue=catalogue, pack=pack)
    return reading.loaded, reading.problems


def read_rule(text: str, path: str, *, catalogue: Catalogue, pack: str = "") -> Reading:
    """A rule from its text, with every problem that can be told of it."""
    source = read_yaml(path, text)
    rule, broken = validate(source) if source.root is not None else (None, frozenset[str]())
    whole = rule is not None
    if rule is None:
        if not isinstance(source.data, dict):
            return Reading(source, None, broken, None, source.problems, pack)
        rule = partial_rule(source.data)
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
        compiler.steps(fix, index)
    compiler.names(rule)
    compiler.texts(rule)
    if not (rule.when.all or rule.when.any) and "when" not in broken:
        compiler.problems.append(
            source.at(("when",), "when needs at least one line under all or any", key=True)
        )
    problems = list(dict.fromkeys([*source.problems, *compiler.problems]))
    sound = whole and not any(p.level == "error" for p in problems)
    return Reading(source, rule, broken, loaded if sound else None, problems, pack)


class _Compiler:
    """Parses every expression and checks every text of one rule."""

    def __init__(self, source: SourceFile, catalogue: Catalogue) -> None:
        self.source = source
        self.catalogue = catalogue
        self.problems: list[Problem] = []

    def _flaws(self, flaws: list[Flaw], location: _Location, *, expression: bool = True) -> None:
        for flaw in flaws:
            message = flaw.message
            node = self.source.node(location)
            if expression and flaw.level == "error" and node is not None:
                if self.source.rest_of_line(node).lstrip().startswith("#"):
                    message += "; what follows '#' is a comment in YAML, quote the line if it belongs to it"
                elif getattr(node, "style", None) in ("|", ">"):
                    message += "; a text that starts with '>' or '|' is a block in YAML, quote it"
            problem = self.source.at(location, message, offset=flaw.offset)
            if flaw.level == "warning":
                problem = self.source.problem(problem.line, problem.column, message, warning=True)
            self.problems.append(problem)

    def _error(self, location: _Location, message: str, *, key: bool = False) -> None:
        if message:
            self.problems.append(self.source.at(location, message, key=key))

    def _condition(self, text: str | None, location: _Location) -> Node | None:
        if text is None or isinstance(text, Gap):
            return None
        node, flaws = parse_condition(text, self.catalogue)
        if node is not None and (fault := constant_flaw(node)):
            flaws, node = [*flaws, Flaw(0, fault)], None
        self._flaws(flaws, location)
        return node

    def conditions(self, lines: list[str], key: str) -> tuple[Node, ...]:
        parsed = (self._condition(line, ("when", key, i)) for i, line in enumerate(lines))
        return tuple(node for node in parsed if node is not None)

    def gains(self, rule: Rule) -> tuple[tuple[Node | None, Node], ...]:
        pairs = []
        for index, way in enumerate(rule.gain):
            condition = self._condition(way.applies_if, ("gain", index, "applies_if"))
            key = "ratio" if way.ratio is not None else "step_time_saved_frac"
            text = way.ratio if way.ratio is not None else way.step_time_saved_frac
            if text is None or isinstance(text, Gap):
                continue
            node, flaws, unit = parse_number(text, self.catalogue)
            if node is not None:
                flaws += bound_flaws(node, unit, share=key != "ratio")
                pairs.append((condition, node))
            self._flaws(flaws, ("gain", index, key))
        return tuple(pairs)

    def applies(self, fix: FixWay, index: int) -> Node | None:
        return self._condition(fix.applies_if, ("fix", index, "applies_if"))

    def predictions(self, fix: FixWay, index: int) -> None:
        for number, line in enumerate(fix.requires):
            self._condition(line, ("fix", index, "requires", number))
        for name, value in fix.predicts.items():
            place: _Location = ("fix", index, "predicts", name)
            other = value[1:] if isinstance(value, str) and value.startswith("=") else name
            unknown = [fact for fact in dict.fromkeys((name, other)) if fact not in self.catalogue]
            for fact in unknown:
                self._error(place, f"unknown fact '{fact}'{did_you_mean(fact, self.catalogue)}", key=True)
            if unknown:
                continue
            if other != name:
                first, second = self.catalogue[name], self.catalogue[other]
                if (first.type in ("int", "float")) != (second.type in ("int", "float")):
                    self._error(place, f"{name} cannot take the value of {other}, which is another kind")
            else:
                self._error(place, value_fault(self.catalogue[name], value))

    def steps(self, fix: FixWay, index: int) -> None:
        for number, step in enumerate(fix.steps):
            if not isinstance(step, Gap):
                for place, fault in step_faults(step):
                    self._error(("fix", index, "steps", number, *place), fault)

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
            if name not in self.catalogue and not isinstance(name, Gap):
                self._error(location, f"unknown fact '{name}'{did_you_mean(name, self.catalogue)}", key=key)
        for i, example in enumerate(rule.examples):
            for name, value in example.facts.items():
                if name in self.catalogue:
                    self._error(("examples", i, "facts", name), value_fault(self.catalogue[name], value))

    def texts(self, rule: Rule) -> None:
        if templates.is_template(rule.title):
            self._error(("title",), "a title is a plain text, facts go into message")
        for text, place, longest in ((rule.title, "title", MAX_TITLE), (rule.message, "message", None)):
            if not text.strip():
                self._error((place,), f"{place} is empty")
            elif longest is not None and (len(text) > longest or "\n" in text.strip()):
                self._error((place,), f"a {place} is one line of at most {longest} characters")
        for index, reference in enumerate(rule.references):
            if (scheme := _SCHEME.match(reference)) and scheme[0].lower() not in ("http:", "https:"):
                self._error(("references", index), "a reference is a web address or a plain text")
        for text, location in rule_texts(rule):
            if templates.is_template(text):
                self._flaws(templates.check(text, self.catalogue)[1], location, expression=False)


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
            if isinstance(step, Gap):
                continue
            dumped = step.model_dump(exclude_none=True, warnings=False)
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
