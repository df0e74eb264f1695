"""Rule files from disk to checked rules. Every error of every file is found before anything is reported."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISREG

from autotune.errors import InputError
from autotune.rules.compile import LoadedRule, Reading, read_rule
from autotune.rules.pack import check_references, own_shims
from autotune.rules.parse import Catalogue
from autotune.rules.problems import Problem, RuleFaults, did_you_mean
from autotune.rules.yaml_text import SourceFile

SUFFIXES = (".yaml", ".yml")
_LARGEST = 1_000_000  # bytes


@dataclass
class RuleSet:
    """The rules to match, with what a user should hear about them."""

    rules: list[LoadedRule] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # overrides, disabled rules
    readings: list[Reading] = field(default_factory=list)  # of every file, also of those with errors


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
    """Loading makes many small objects that all stay: looking for garbage among them costs half of it.

    What the first loading of a process made is set apart, so that later collections pass it over.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_freeze_count() == 0:
                gc.freeze()
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
            reading = read_file(path, folder, catalogue=catalogue, root=root)
            result.readings.append(reading)
            problems += [p for p in reading.problems if p.level == "error"]
            result.warnings += [p for p in reading.problems if p.level == "warning"]
            places.add(_expected_id(path, folder))
            loaded = reading.loaded
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
                whose = (
                    "the built-in one" if by_id[rule_id].pack == str(dirs[0]) else by_id[rule_id].source.path
                )
                result.notes.append(f"{rule_id}: the rule of {loaded.source.path} replaces {whose}")
            by_id[rule_id] = loaded
    problems += check_references(result.readings, {*by_id, *places})
    off: set[str] = set()
    lost: list[str] = []
    for pattern in disabled:
        hits = [rule_id for rule_id in by_id if fnmatchcase(rule_id, pattern)]
        if not hits:
            lost.append(pattern)
            continue
        off.update(hits)
        many = f" ({len(hits)} rules)" if len(hits) > 1 else ""
        result.notes.append(f"{pattern if many else hits[0]}: disabled by configuration{many}")
    if lost and not problems:
        raise InputError(
            f"cannot disable {', '.join(repr(pattern) for pattern in lost)}: no such rule",
            hint=_hint(lost[0], by_id),
            code="pattern-matches-nothing",
        )
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
        and not path.is_dir()
        and not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise InputError(
            f"{folder} holds no rule files", hint="a rule lies at <category>/<name>.yaml", code="rules-folder"
        )
    return files


def _expected_id(path: Path, folder: Path) -> str:
    return path.relative_to(folder).with_suffix("").as_posix()


def read_file(path: Path, folder: Path, *, catalogue: Catalogue, root: Path | None = None) -> Reading:
    """One rule file, with the shims that it brings along."""
    shown = str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else str(path)
    try:
        found = path.stat()
        if not S_ISREG(found.st_mode):  # a pipe or a device may have no end
            return _unreadable(shown, folder, "this is no plain file")
        if found.st_size > _LARGEST:
            return _unreadable(shown, folder, f"the file is too large for a rule ({found.st_size:,} bytes)")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        return _unreadable(shown, folder, f"the file is not UTF-8 text (byte {error.start})")
    except OSError as error:
        return _unreadable(shown, folder, f"the file cannot be read ({error.strerror})")
    reading = read_rule(text, shown, catalogue=catalogue, pack=str(folder))
    more: list[Problem] = []
    expected, given = _expected_id(path, folder), getattr(reading.rule, "id", None)
    if given is not None and given != expected and "id" not in reading.broken:
        message = f"the id is '{given}', the file's place says '{expected}'"
        more.append(reading.source.at(("id",), message))
    shims, faults = own_shims(reading, folder)
    more += faults
    if more:
        return replace(reading, loaded=None, problems=[*reading.problems, *more])
    return replace(reading, loaded=replace(reading.loaded, shims=shims)) if reading.loaded else reading


def _unreadable(shown: str, folder: Path, message: str) -> Reading:
    source = SourceFile(shown, "")
    return Reading(source, None, frozenset(), None, [source.problem(1, 1, message)], str(folder))
