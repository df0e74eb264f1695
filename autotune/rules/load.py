"""Rule files from disk to checked rules. Every error of every file is found before anything is reported."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autotune.errors import FilesError, InputError
from autotune.rules import templates
from autotune.rules.expression import Node
from autotune.rules.model import FixWay, Rule
from autotune.rules.parse import Catalogue, Flaw, parse_condition, parse_number
from autotune.rules.problems import Problem, RuleFaults, did_you_mean
from autotune.rules.shape import validate
from autotune.rules.yaml_text import SourceFile, read_yaml

SUFFIXES = (".yaml", ".yml")
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


@dataclass
class RuleSet:
    """The rules to match, with what a user should hear about them."""

    rules: list[LoadedRule] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # overrides, disabled rules


def load_rules(
    dirs: Sequence[Path], disabled: Collection[str] = (), *, catalogue: Catalogue, root: Path | None = None
) -> RuleSet:
    """Rules of all folders; a later folder replaces rules of the same id.

    Raises RuleFaults with all errors, InputError for a folder that is not there or holds no rule.
    """
    result, problems = collect_rules(dirs, disabled, catalogue=catalogue, root=root)
    if problems:
        raise RuleFaults(problems)
    return result


def collect_rules(
    dirs: Sequence[Path], disabled: Collection[str] = (), *, catalogue: Catalogue, root: Path | None = None
) -> tuple[RuleSet, list[Problem]]:
    """As `load_rules`, with the errors returned instead of raised."""
    result = RuleSet()
    problems: list[Problem] = []
    by_id: dict[str, LoadedRule] = {}
    places: set[str] = set()  # also of files with errors, so that one error does not cause others
    for folder in dirs:
        in_folder: dict[str, LoadedRule] = {}
        for path in rule_files(folder):
            loaded, found = load_file(path, folder, catalogue=catalogue, root=root)
            problems += [p for p in found if p.level == "error"]
            result.warnings += [p for p in found if p.level == "warning"]
            places.add(_expected_id(path, folder))
            if loaded is None:
                continue
            if loaded.id in in_folder:
                first = in_folder[loaded.id].source
                place = first.at(("id",), "")
                where = f"{place.path}:{place.line}:{place.column}"
                problems.append(
                    loaded.source.at(("id",), f"the id '{loaded.id}' is used twice, first in {where}")
                )
                continue
            in_folder[loaded.id] = loaded
        for rule_id, loaded in in_folder.items():
            if rule_id in by_id:
                result.notes.append(f"{rule_id}: the rule of {loaded.source.path} replaces the built-in one")
            by_id[rule_id] = loaded
    problems += _check_references(by_id.values(), {*by_id, *places})
    for rule_id in disabled:
        if rule_id not in by_id:
            raise InputError(f"cannot disable '{rule_id}': no such rule", hint=_hint(rule_id, by_id))
        result.notes.append(f"{rule_id}: disabled by configuration")
    result.rules = [loaded for rule_id, loaded in by_id.items() if rule_id not in set(disabled)]
    return result, problems


def _hint(rule_id: str, known: Collection[str]) -> str:
    return did_you_mean(rule_id, known, join="did you mean {}?") or "autotune rules list shows all"


def rule_files(folder: Path) -> list[Path]:
    """All rule files of a pack; folders whose name begins with _ hold tables."""
    if not folder.is_dir():
        raise InputError(f"there is no rules folder {folder}")
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in SUFFIXES
        and not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise InputError(f"{folder} holds no rule files", hint="a rule lies at <category>/<name>.yaml")
    return files


def _expected_id(path: Path, folder: Path) -> str:
    return path.relative_to(folder).with_suffix("").as_posix()


def load_file(
    path: Path, folder: Path, *, catalogue: Catalogue, root: Path | None = None
) -> tuple[LoadedRule | None, list[Problem]]:
    """One rule file; None when it has errors."""
    shown = str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return None, [Problem(shown, 1, 1, f"the file is not UTF-8 text (byte {error.start})")]
    except OSError as error:
        raise FilesError(f"cannot read {path}: {error.strerror}") from error
    loaded, problems = load_text(text, shown, catalogue=catalogue, pack=str(folder))
    expected = _expected_id(path, folder)
    if loaded is not None and loaded.id != expected:
        problems.append(
            loaded.source.at(("id",), f"the id is '{loaded.id}', the file's place says '{expected}'")
        )
        return None, problems
    return loaded, problems


def load_text(
    text: str, path: str, *, catalogue: Catalogue, pack: str = ""
) -> tuple[LoadedRule | None, list[Problem]]:
    """A rule from its text."""
    source = read_yaml(path, text)
    rule = validate(source) if source.root is not None else None
    if rule is None:
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


def _check_references(rules: Iterable[LoadedRule], known: Collection[str]) -> list[Problem]:
    problems = []
    for loaded in rules:
        for key in ("after", "excludes", "together_with", "explained_by"):
            for index, other in enumerate(getattr(loaded.rule, key)):
                if other not in known:
                    message = f"{key} names the rule '{other}', which does not exist"
                    problems.append(loaded.source.at((key, index), message + did_you_mean(other, known)))
                elif other == loaded.id:
                    problems.append(loaded.source.at((key, index), f"{key} names the rule itself"))
    return problems


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
