"""Options that choose among changes, shared by apply, verify and optimize."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autotune.cli.common import current_screen
from autotune.cli.complete import rule_ids
from autotune.cli.kinds import PathValue
from autotune.errors import InputError

if TYPE_CHECKING:
    from autotune.apply.plan import Choice

F = TypeVar("F", bound=Callable[..., Any])


def choice_options(function: F) -> F:
    """--select, --exclude, --unsafe and --wheelhouse."""
    for option in (
        click.option(
            "--select",
            multiple=True,
            shell_complete=rule_ids,
            help="Only this rule, or a category such as 'kernels/*'.",
        ),
        click.option(
            "--exclude",
            multiple=True,
            shell_complete=rule_ids,
            help="Not this rule or category (repeatable).",
        ),
        click.option("--unsafe", is_flag=True, help="Also changes that a person should review."),
        click.option(
            "--wheelhouse",
            type=PathValue(exists=True, file_okay=False),
            help="Folder of wheels to install packages from, without a network.",
        ),
    ):
        function = option(function)
    return function


def choice_of(
    select: Sequence[str],
    exclude: Sequence[str],
    unsafe: bool,
    *,
    run: Path | None,
    rule_dirs: Sequence[Path] = (),
) -> Choice:
    """The choice these options make. Raises InputError for a pattern that fits no rule there is.

    Known are the built-in rules, those of `rule_dirs`, and every rule the run's diagnosis speaks of.
    """
    from autotune.apply.plan import Choice

    if select or exclude:
        known = {*_rule_ids(rule_dirs), *_rules_of(run)}
        for option, patterns in (("--select", select), ("--exclude", exclude)):
            _refuse_strangers(option, patterns, known)
        _note_unfound(select, run)
    return Choice(select=tuple(select), exclude=tuple(exclude), unsafe=unsafe)


def refuse_pairs(min_pairs: int, max_pairs: int) -> None:
    """Raise InputError where no number of pairs is both enough and few enough."""
    if max_pairs < min_pairs:
        raise InputError(
            f"--max-pairs {max_pairs} is less than --min-pairs {min_pairs}", code="value-refused"
        )


def _refuse_strangers(option: str, patterns: Iterable[str], known: set[str]) -> None:
    from fnmatch import fnmatchcase

    from autotune.rules.problems import did_you_mean

    for pattern in patterns:
        if not any(fnmatchcase(rule, pattern) for rule in known):
            categories = {f"{rule.split('/', 1)[0]}/*" for rule in known}
            near = did_you_mean(pattern, sorted(known | categories), join="did you mean {}?")
            raise InputError(
                f"{option} '{pattern}' fits no rule",
                hint=near or "autotune rules list shows the ids; a category is written 'kernels/*'",
                code="pattern-matches-nothing",
            )


def _note_unfound(patterns: Iterable[str], run: Path | None) -> None:
    """A known rule that this run did not find is no mistake, but has no effect."""
    from fnmatch import fnmatchcase

    from autotune.records.findings import Diagnosis
    from autotune.store import read_record

    if run is None or not (run / "diagnosis.json").is_file():
        return
    found = [finding.rule for finding in read_record(run / "diagnosis.json", Diagnosis).findings]
    for pattern in patterns:
        if not any(fnmatchcase(rule, pattern) for rule in found):
            current_screen().note(f"--select '{pattern}' has no effect: {run.name} has no such finding")


def _rule_ids(rule_dirs: Sequence[Path]) -> Iterable[str]:
    """Ids by the files' places: the loader refuses a rule whose id differs from it."""
    from autotune.data import data_dir
    from autotune.rules.load import rule_files

    for folder in (data_dir("rules"), *rule_dirs):
        for path in rule_files(folder):
            yield path.relative_to(folder).with_suffix("").as_posix()


def _rules_of(run: Path | None) -> Iterable[str]:
    from autotune.records.findings import Diagnosis
    from autotune.store import read_record

    if run is None or not (run / "diagnosis.json").is_file():
        return
    diagnosis = read_record(run / "diagnosis.json", Diagnosis)
    for group in (diagnosis.findings, diagnosis.undecided, diagnosis.passed, diagnosis.not_applicable):
        for entry in group:
            yield entry.rule
