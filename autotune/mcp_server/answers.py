"""What a tool gives back: the verb's own record, short by default, and how the verb ended."""

from __future__ import annotations

from typing import Any

from autotune.error_codes import EXIT_MEANINGS
from autotune.mcp_server.child import Said

# Long parts of a record that a reader seldom needs; `detail` brings them back.
_LONG: dict[str, tuple[str, ...]] = {
    "diagnosis": ("facts", "passed"),
    "verdict": ("trials", "parity_evidence", "blocks", "arms"),
}


class VerbFailedError(Exception):
    """The verb gave no record; the message is its one line and its exit code."""


def answer_of(said: Said, kind: str, *, detail: bool) -> dict[str, Any]:
    """The record under its name, with the exit code in words. Raises VerbFailedError when there is none."""
    words = {int(code): text for code, text in EXIT_MEANINGS.items()}
    meaning = words.get(said.exit_code, f"ended by signal {-said.exit_code}")
    if said.answer is None or "error" in said.answer:  # a fault is a document of its own
        raise VerbFailedError(f"{said.fault or 'no answer'} (exit code {said.exit_code}: {meaning})")
    record = dict(said.answer)
    omitted: dict[str, int] = {}
    if not detail:
        for name in _LONG.get(kind, ()):
            if name in record:
                omitted[name] = len(record.pop(name))
    answer: dict[str, Any] = {"exit_code": said.exit_code, "exit_meaning": meaning, kind: record}
    if said.fault:
        answer["fault"] = said.fault
    if omitted:
        answer["omitted"] = omitted
    return answer
