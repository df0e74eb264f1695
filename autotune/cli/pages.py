"""The command reference as a page, made from the commands themselves."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import click

_HEAD = "<!-- Made by `autotune rules pages docs`; change the command's help, not this page. -->\n"


def commands_page() -> str:
    """docs/commands.md: every verb with its arguments and options, the exit codes, the error codes."""
    from autotune.cli.main import _VERBS, cli
    from autotune.error_codes import CODES, EXIT_MEANINGS

    root = click.Context(cli, info_name="autotune")
    lines = [
        _HEAD + "# Commands",
        "",
        "`autotune COMMAND --help` shows the same in the terminal. The training command stands after `--`.",
        "",
        "| command | what it does |",
        "|---|---|",
        *(f"| [`{verb}`](#autotune-{verb}) | {_cell(text)} |" for verb, (_, text) in _VERBS.items()),
    ]
    for verb, (module, _) in _VERBS.items():
        for path, command in _with_parts(verb, importlib.import_module(module).command):
            lines += _section(click.Context(command, info_name=path, parent=root), path, command)
    lines += ["", "## Exit codes", "", "| exit code | meaning |", "|---|---|"]
    lines += [f"| {int(code)} | {_cell(meaning)} |" for code, meaning in EXIT_MEANINGS.items()]
    lines += [
        "",
        "## Error codes",
        "",
        "The word in brackets at the end of a message; `autotune explain CODE`.",
    ]
    lines += ["", "| code | exit code | meaning | what to do |", "|---|---|---|---|"]
    lines += [
        f"| `{code}` | {int(page.exit_code)} | {_cell(page.means)} | {_cell(page.todo)} |"
        for code, page in CODES.items()
    ]
    return "\n".join(lines) + "\n"


def _with_parts(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """The command, then its own commands."""
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            if not command.commands[name].hidden:
                yield from _with_parts(f"{path} {name}", command.commands[name])


def _section(ctx: click.Context, path: str, command: click.Command) -> list[str]:
    depth = "#" * (2 + path.count(" "))
    usage = " ".join(command.collect_usage_pieces(ctx))
    lines = ["", f"{depth} autotune {path}", "", *_paragraphs(command.help or "")]
    lines += ["", "```", f"autotune {path} {usage}", "```"]
    if command.epilog:
        lines += ["", f"Example: `{command.epilog.removeprefix('Example: ')}`"]
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if options:
        lines += ["", "| option | meaning |", "|---|---|"]
        lines += [f"| {_names(option, ctx)} | {_cell(_meaning(option))} |" for option in options]
    return lines


def _paragraphs(text: str) -> list[str]:
    """Help text as Markdown: a paragraph marked as raw becomes a block of code."""
    lines: list[str] = []
    for part in text.split("\n\n"):
        rows = [row.strip() for row in part.strip().splitlines()]
        if rows and rows[0] == "\b":
            lines += ["```", *rows[1:], "```", ""]
        elif rows:
            lines += [" ".join(rows), ""]
    return lines[:-1]


def _names(option: click.Option, ctx: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    if option.is_flag or option.count:
        return names
    if isinstance(option.type, click.Choice):
        return f"{names} {_cell(' | '.join(map(str, option.type.choices)))}"
    return f"{names} {_cell(option.make_metavar(ctx))}"


def _meaning(option: click.Option) -> str:
    notes = []
    if option.show_default and option.default is not None and not callable(option.default):
        notes.append(f"default {option.default}")
    if option.multiple and "repeatable" not in (option.help or ""):
        notes.append("repeatable")
    return f"{option.help or ''}{' (' + ', '.join(notes) + ')' if notes else ''}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
