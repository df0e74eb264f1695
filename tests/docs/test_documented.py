"""The documentation names everything there is, commands to codes, and its links lead somewhere."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pages import DOCS, ROOT, anchors, links, pages

from autotune import Run
from autotune.cli.main import _VERBS
from autotune.cli.pages import commands_page
from autotune.data import data_dir
from autotune.error_codes import CODES
from autotune.errors import Exit
from autotune.facts.catalogue import catalogue
from autotune.notebook.table import Table
from autotune.rules.load import load_rules

COMMANDS = DOCS / "commands.md"


def _commands() -> Iterator[tuple[str, click.Command]]:
    waiting = [(verb, importlib.import_module(module).command) for verb, (module, _) in _VERBS.items()]
    while waiting:
        path, command = waiting.pop()
        yield path, command
        if isinstance(command, click.Group):
            waiting += [(f"{path} {n}", part) for n, part in command.commands.items() if not part.hidden]


@pytest.mark.parametrize(
    ("path", "command"), list(_commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_command_and_option_is_documented(path: str, command: click.Command) -> None:
    text = COMMANDS.read_text(encoding="utf-8")
    head = re.search(rf"^#+ autotune {re.escape(path)}$", text, re.M)
    assert head is not None
    section = re.split(r"^#+ ", text[head.end() :], maxsplit=1, flags=re.M)[0]
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    for option in options:
        assert option.help, f"autotune {path} {option.opts[0]} has no help"
        for name in option.opts:
            assert f"`{name}`" in section, f"autotune {path} {name}"


def test_the_command_reference_is_fresh() -> None:
    assert COMMANDS.read_text(encoding="utf-8") == commands_page(), "run: autotune rules pages docs"


def test_every_fact_rule_and_code_is_documented() -> None:
    facts = (DOCS / "facts.md").read_text(encoding="utf-8")
    assert [name for name in catalogue() if f"`{name}`" not in facts] == []
    rules = (DOCS / "rules.md").read_text(encoding="utf-8")
    loaded = load_rules([data_dir("rules")], catalogue=catalogue()).rules
    assert [rule.id for rule in loaded if f"### {rule.id}\n" not in rules] == []
    commands = COMMANDS.read_text(encoding="utf-8")
    assert [code for code in CODES if f"`{code}`" not in commands] == []


@pytest.mark.parametrize("page", [ROOT / "README.md", COMMANDS], ids=lambda page: page.name)
def test_every_exit_code_is_documented(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [int(code) for code in Exit if f"\n| {int(code)} |" not in text] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        assert place.exists(), f"{page.name}: {target}"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), f"{page.name}: {target}"


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"^ +- ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    listed |= set(re.findall(r"^  - ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert listed == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


def test_options_named_in_the_pages_exist() -> None:
    known = {name for _, command in _commands() for p in command.params for name in p.opts} | {
        "--help",
        "--version",
    }
    unknown = []
    for page in pages():
        for line in page.read_text(encoding="utf-8").splitlines():
            for command in re.findall(r"autotune [a-z][^`|#;]*", line):
                own = command.split(" -- ")[0]
                unknown += [
                    f"{page.name}: {own}: {o}" for o in re.findall(r"(?<=\s)--[a-z-]+", own) if o not in known
                ]
    assert unknown == []


def test_every_public_name_of_a_run_is_documented() -> None:
    text = (DOCS / "guides" / "notebook.md").read_text(encoding="utf-8")
    for kind in (Run, Table):
        for name, member in vars(kind).items():
            if name.startswith("_"):
                continue
            inner = getattr(member, "func", None) or getattr(member, "fget", None) or member
            if callable(inner) or isinstance(member, classmethod):
                assert inspect.getdoc(inner), f"{kind.__name__}.{name} has no docstring"
            assert re.search(rf"\b{name}\b", text), f"{kind.__name__}.{name}"


def test_every_tool_of_the_server_is_documented(tmp_path: Path) -> None:
    from autotune.mcp_server.server import build_server

    text = (DOCS / "guides" / "mcp.md").read_text(encoding="utf-8")
    tools = asyncio.run(build_server(tmp_path).list_tools())
    assert len(tools) == 6
    assert [tool.name for tool in tools if f"| `{tool.name}` |" not in text or not tool.description] == []
