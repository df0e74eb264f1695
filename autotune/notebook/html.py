"""A run as a small card for notebooks: the sentence, the findings, the ladder, the proof."""

from __future__ import annotations

import shlex
from html import escape
from typing import TYPE_CHECKING

from autotune.notebook.table import Table, cell_text

if TYPE_CHECKING:
    from autotune.notebook.run import Run


def run_card(run: Run) -> str:
    """HTML without scripts, styles from elsewhere or links; every text of the job is escaped."""
    record = run.record
    command = shlex.join(record.command) if record.command else " ".join(record.traces)
    parts = [f"<p><b>{escape(run.name)}</b> <code>{escape(command)}</code></p>"]
    if not (run.folder / "diagnosis.json").exists():
        return "".join([*parts, f"<p>{escape(record.error or f'state: {record.state}')}</p>"])
    parts.append(f"<p>{escape(run.verdict)}</p>")
    if run.findings:
        parts.append(_table(run.findings_table, ("severity", "title", "ratio_upper", "place", "fix")))
    if run.ladder is not None:
        columns = ("rung", "name", "useful_tokens_per_s", "ratio_to_first", "low_to_first", "high_to_first")
        parts.append(_table(run.rungs, columns))
    if run.verification is not None:
        parts.append(f"<p>{escape(run.verification.sentence)}</p>")
        parts.append(f"<p>{escape(run.verification.parity.sentence)}</p>")
    return "".join(parts)


def _table(table: Table, columns: tuple[str, ...]) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell_text(row[name]))}</td>" for name in columns) + "</tr>"
        for row in table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
