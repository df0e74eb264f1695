"""The journal of a loop: one line of plain words for each decision, kept in the run and shown."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.store import append_json

if TYPE_CHECKING:
    from autotune.records.verdict import Trial


_MOST_S = 1e7  # of one start; more is no time that a loop wrote


class Journal:
    """Appends decisions to `journal.jsonl` and hands each line to `say`."""

    def __init__(self, run: Path, say: Callable[[str], None]) -> None:
        self._path = run / "journal.jsonl"
        self._say = say
        self._whole = False

    def seconds_of_starts(self) -> float:
        """What the starts of the job took that are noted so far; an unfinished line is passed over."""
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return 0.0
        total = 0.0
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the loop was killed while it wrote
            spent = entry.get("wall_s") if isinstance(entry, dict) and entry.get("event") == "start" else None
            if isinstance(spent, (int, float)) and not isinstance(spent, bool) and 0 <= spent < _MOST_S:
                total += spent
        return total

    def decide(self, event: str, text: str, **data: object) -> None:
        """Record one decision."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._append({"at": stamp, "event": event, "text": text, **data})
        self._say(text)

    def note(self, event: str, text: str, **data: object) -> None:
        """Record what happened without showing it."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._append({"at": stamp, "event": event, "text": text, **data})

    def _append(self, entry: dict[str, object]) -> None:
        """A loop that was killed while it wrote has left half a line: it gets its end first."""
        if not self._whole:
            with suppress(OSError), open(self._path, "rb+") as written:
                written.seek(0, os.SEEK_END)
                if written.tell():
                    written.seek(-1, os.SEEK_END)
                    if written.read(1) != b"\n":
                        written.write(b"\n")
        append_json(self._path, entry)
        self._whole = True

    def started(self, trial: Trial) -> None:
        """Each start of the job with what it took: the journal shows where the minutes went."""
        fresh = bool(trial.started_at)
        made = f"{trial.wall_s:.1f} s" if fresh else "used again"
        block = f" of block {trial.block}" if trial.block else ""
        self.note(
            "start",
            f"{trial.purpose}{block}, {trial.arm}: {made}, {len(trial.steps)} steps, {trial.outcome}",
            purpose=trial.purpose,
            arm=trial.arm,
            label=trial.label,
            wall_s=trial.wall_s if fresh else 0.0,
            startup_s=trial.startup_s,
            steps=len(trial.steps),
        )
