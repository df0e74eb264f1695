"""What goes to the terminal: progress and messages to stderr, answers to stdout, JSON alone with `--json`."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from autotune.records.base import Document

_PLAIN_INTERVAL_S = 10.0
_LAYOUT = "\n\t\u200c\u200d\u00a0"
# In JSON they stand in strings only, where the escape means the same: C1 controls and text direction.
_DECEPTIVE = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Text for a terminal: foreign names may hold escape sequences, text direction or lone surrogates."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _LAYOUT else "\ufffd" for c in text)


def _harmless(text: str) -> str:
    return _DECEPTIVE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@dataclass
class Screen:
    """Where a verb speaks. `quiet` silences progress; `as_json` keeps stdout for one JSON document."""

    quiet: bool = False
    as_json: bool = False
    answered: bool = False  # a document was printed
    _last_status: str = ""
    _last_status_at: float = field(default=0.0)
    _status_open: bool = False

    def answer(self, text: str) -> None:
        """Print part of the answer (nothing with --json: the document is the answer)."""
        if not self.as_json:
            self._end_status()
            print(printable(text))

    def document(self, record: Document) -> None:
        """Print the answer of --json."""
        self._end_status()
        self.answered = True
        print(_harmless(record.json_text()))

    def json_value(self, value: object) -> None:
        """Print a plain JSON value that carries its own schema_version."""
        self._end_status()
        self.answered = True
        print(json.dumps(value, indent=1))

    def note(self, text: str) -> None:
        """A line about what is happening, on stderr."""
        if not self.quiet:
            self._end_status()
            print(printable(text), file=sys.stderr, flush=True)

    def error(self, text: str) -> None:
        """The one line of a fault, on stderr, also when quiet."""
        self._end_status()
        print(f"autotune: {printable(text)}", file=sys.stderr, flush=True)

    def status(self, text: str, *, new_phase: bool = False) -> None:
        """Progress: rewritten in place on a terminal; a plain line every ten seconds elsewhere."""
        text = printable(text)
        if self.quiet or text == self._last_status:
            return
        now = time.monotonic()
        if sys.stderr.isatty():
            width = _terminal_width() - 1
            print(f"\r\x1b[2K{text[:width]}", end="", file=sys.stderr, flush=True)
            self._status_open = True
        elif new_phase or now - self._last_status_at >= _PLAIN_INTERVAL_S:
            print(text, file=sys.stderr, flush=True)
        else:
            return
        self._last_status, self._last_status_at = text, now

    def rich(self) -> Console:
        """A rich console on stdout for answers; 80 columns when it is no terminal."""
        from rich.console import Console

        self._end_status()
        width = None if sys.stdout.isatty() else 80
        return Console(width=width, highlight=False, soft_wrap=False, quiet=self.as_json)

    def _end_status(self) -> None:
        if self._status_open:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
            self._status_open = False


def _terminal_width() -> int:
    import shutil

    return shutil.get_terminal_size((80, 24)).columns
