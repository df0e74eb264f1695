"""Rule files from disk to checked rules. Every error of every file is found before anything is reported."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from autotune.errors import FilesError, InputError
from autotune.rules.compile import LoadedRule, load_text
from autotune.rules.parse import Catalogue
from autotune.rules.problems import Problem, RuleFaults, did_you_mean

SUFFIXES = (".yaml", ".yml")


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
    with _collector_paused():
        return _collect(dirs, disabled, catalogue, root)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Loading makes many small objects that all stay: looking for garbage among them costs a third of it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _collect(
    dirs: Sequence[Path], disabled: Collection[str], catalogue: Catalogue, root: Path | None
) -> tuple[RuleSet, list[Problem]]:
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
    off: set[str] = set()
    for pattern in disabled:
        hits = [rule_id for rule_id in by_id if fnmatchcase(rule_id, pattern)]
        if not hits:
            raise InputError(
                f"cannot disable '{pattern}': no such rule",
                hint=_hint(pattern, by_id),
                code="pattern-matches-nothing",
            )
        off.update(hits)
        many = f" ({len(hits)} rules)" if len(hits) > 1 else ""
        result.notes.append(f"{pattern if many else hits[0]}: disabled by configuration{many}")
    result.rules = [loaded for rule_id, loaded in by_id.items() if rule_id not in off]
    return result, problems


def _hint(rule_id: str, known: Collection[str]) -> str:
    category, slash, rest = rule_id.partition("/")
    if slash and any(sign in rest for sign in "*?["):
        near = did_you_mean(category, {name.partition("/")[0] for name in known}, join="{}").strip("'")
        if near and near != category:
            return f"did you mean '{near}/{rest}'?"
    return did_you_mean(rule_id, known, join="did you mean {}?") or "autotune rules list shows all"


def rule_files(folder: Path) -> list[Path]:
    """All rule files of a pack; folders whose name begins with _ hold tables."""
    if not folder.is_dir():
        raise InputError(f"there is no rules folder {folder}", code="rules-folder")
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in SUFFIXES
        and not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise InputError(
            f"{folder} holds no rule files", hint="a rule lies at <category>/<name>.yaml", code="rules-folder"
        )
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
