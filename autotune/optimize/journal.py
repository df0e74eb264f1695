"""The journal of a loop: one line of plain words for each decision, kept in the run and shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from autotune.store import append_json


class Journal:
    """Appends decisions to `journal.jsonl` and hands each line to `say`."""

    def __init__(self, run: Path, say: Callable[[str], None]) -> None:
        self._path = run / "journal.jsonl"
        self._say = say

    def decide(self, event: str, text: str, **data: object) -> None:
        """Record one decision."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        append_json(self._path, {"at": stamp, "event": event, "text": text, **data})
        self._say(text)

    def note(self, event: str, text: str, **data: object) -> None:
        """Record what happened without showing it."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        append_json(self._path, {"at": stamp, "event": event, "text": text, **data})
