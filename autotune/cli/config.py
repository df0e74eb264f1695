"""`autotune config`: what holds here, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.common import current_screen, output_options
from autotune.cli.groups import SuggestingGroup

if TYPE_CHECKING:
    from autotune.records.answers import ConfigValue
    from autotune.settings import Settings

_WIDEST_VALUE = 40


@click.group("config", cls=SuggestingGroup, epilog="Example: autotune config show")
def command() -> None:
    """Show the configuration: `autotune.toml`, or `[tool.autotune]` in `pyproject.toml`, found upward."""


@command.command(epilog="Example: autotune config show --json")
@output_options
def show() -> None:
    """Show every key with its value and where that comes from: the file's line, or the default."""
    from autotune.records.answers import ConfigShown
    from autotune.settings import load_settings

    screen = current_screen()
    settings = load_settings(Path.cwd())
    rows = list(_rows(settings))
    if screen.as_json:
        screen.document(
            ConfigShown(file=str(settings.file) if settings.file is not None else None, values=rows)
        )
        return
    screen.answer(f"file  {settings.file or 'none (no autotune.toml or [tool.autotune] upward from here)'}")
    width = max(len(row.key) for row in rows)
    values = max(min(len(_shown(row.value)), _WIDEST_VALUE) for row in rows)
    for row in rows:
        screen.answer(f"{row.key:<{width}}  {_shown(row.value):<{values}}  {row.origin}")


def _rows(settings: Settings) -> Iterator[ConfigValue]:
    from autotune.records.answers import ConfigValue
    from autotune.settings import KEYS

    for name, key in KEYS.items():
        set_here = settings.values.get(name)
        if set_here is not None:
            yield ConfigValue(
                key=name, value=_plain(set_here.value), origin=str(set_here.place), means=key.means
            )
            continue
        for verbs, value in _defaults(key.parameter).items():
            yield ConfigValue(key=name, value=value, origin=f"default of {verbs}", means=key.means)
    for name, found in settings.values.items():
        if "." in name:
            means = KEYS[name.partition(".")[2]].means
            yield ConfigValue(key=name, value=_plain(found.value), origin=str(found.place), means=means)
    for rule, found in settings.severity.items():
        yield ConfigValue(
            key=f"severity.{rule}",
            value=found.value,
            origin=str(found.place),
            means="Severity the rule's findings are reported with.",
        )


def _defaults(parameter: str) -> dict[str, Any]:
    """Verbs that have the option -> its built-in default; verbs with the same default stand together."""
    from autotune.cli.main import cli
    from autotune.settings import VERB_TABLES

    context = click.Context(cli)
    grouped: dict[str, tuple[Any, list[str]]] = {}
    for verb in VERB_TABLES:
        found = cli.get_command(context, verb)
        for option in found.params if found is not None else ():
            if option.name == parameter:
                default = _plain(option.to_info_dict().get("default"))
                grouped.setdefault(repr(default), (default, []))[1].append(verb)
    return {", ".join(verbs): default for default, verbs in grouped.values()}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [str(part) for part in value]
    return str(value) if isinstance(value, Path) else value


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) or "-" if isinstance(value, list) else str(value)
