"""What the documentation tests read: pages, their links, anchors and the commands marked as runnable.

A fenced block behind `<!-- run -->` is run by the tests; behind `<!-- run: full -->` in the full matrix.
Lines that begin with `$ ` are commands (all lines, where none does). The rest is output that must appear in
this order; lines with `...` are not compared, and with `commands` (`<!-- run: full commands -->`) none is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_MARKED = re.compile(r"<!-- run(?:: (?P<how>[a-z ]+))? -->\n+```[a-z]*\n(?P<body>.*?)```", re.S)
_FENCE = re.compile(r"```.*?```", re.S)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """Commands of a page that run, in order."""

    page: Path
    number: int
    commands: tuple[tuple[str, tuple[str, ...]], ...]  # command, lines of output it must print
    full: bool


def pages() -> list[Path]:
    """README and every page of the site."""
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def links(page: Path) -> list[str]:
    """Targets of the page's links and pictures, code left out."""
    text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))
    return [first or second for first, second in _LINK.findall(text)]


def anchors(page: Path) -> set[str]:
    """Anchors of the page's headings, as GitHub and the site make them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    found: set[str] = set()
    for title in re.findall(r"^#+ (.*)$", text, re.M):
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        found.add(re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", plain)))
    return found


def blocks(page: Path) -> list[Block]:
    """Blocks marked as runnable."""
    found: list[Block] = []
    for number, match in enumerate(_MARKED.finditer(page.read_text(encoding="utf-8")), 1):
        how = (match["how"] or "").split()
        commands = _commands(match["body"])
        if "commands" in how:
            commands = tuple((command, ()) for command, _ in commands)
        found.append(Block(page, number, commands, "full" in how))
    return found


def _commands(body: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    lines = body.rstrip("\n").split("\n")
    if not any(line.startswith("$ ") for line in lines):
        return tuple((line, ()) for line in lines if line.strip() and not line.startswith("#"))
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip() and "..." not in line:
            found[-1][1].append(line.rstrip())
    return tuple((command, tuple(output)) for command, output in found)
