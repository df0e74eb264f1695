"""What the HTML page shows, as plain values: sections of figures, tables, findings and text.

Everything here is text and numbers that nothing has escaped yet; the template and the figures do that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from autotune.report.html.plots import Key, Plot, legend


@dataclass(frozen=True, slots=True)
class Table:
    """A table; columns in `numeric` are set flush right. `marks` names the rows' CSS class, if any."""

    caption: str
    head: list[str]
    rows: list[list[str]]
    numeric: frozenset[int] = frozenset()
    marks: list[str] = field(default_factory=list)
    kind: Literal["table"] = "table"


def filled(table: Table) -> Table:
    """The table without columns in which no row says anything."""
    kept = [at for at in range(len(table.head)) if any(row[at] for row in table.rows)]
    return Table(
        table.caption,
        [table.head[at] for at in kept],
        [[row[at] for at in kept] for row in table.rows],
        frozenset(new for new, old in enumerate(kept) if old in table.numeric),
        table.marks,
    )


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawn figure. `label` says in a sentence what it shows; `data` holds the same numbers."""

    id: str
    title: str
    label: str
    plot: Plot
    data: Table
    note: str = ""
    kind: Literal["figure"] = "figure"

    @property
    def keys(self) -> list[Key]:
        """The legend."""
        return legend(self.plot)


@dataclass(frozen=True, slots=True)
class Note:
    """A paragraph."""

    text: str
    tone: Literal["plain", "caution"] = "plain"
    kind: Literal["note"] = "note"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names with their values."""

    rows: list[tuple[str, str]]
    kind: Literal["pairs"] = "pairs"


@dataclass(frozen=True, slots=True)
class Checks:
    """Entries with a state, such as the questions of a parity test."""

    title: str
    rows: list[tuple[str, str, str]]  # state, name, detail
    kind: Literal["checks"] = "checks"


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a unified diff."""

    sign: Literal["+", "-", " ", "@"]
    text: str


@dataclass(frozen=True, slots=True)
class DiffFile:
    """The changes of one file."""

    name: str
    added: int
    removed: int
    lines: list[DiffLine]
    new: bool = False
    left_out: int = 0  # lines not shown


@dataclass(frozen=True, slots=True)
class Change:
    """What a fix changes: files, and what no file shows."""

    files: list[DiffFile]
    command: list[str] = field(default_factory=list)  # changed flags, variables, packages: one line each
    reason: str = ""  # why nothing can be shown
    kind: Literal["change"] = "change"


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding."""

    anchor: str
    rule: str
    title: str
    severity: str
    confidence: str
    bound: str
    bound_basis: str
    paragraphs: list[str]
    evidence: list[tuple[str, str]]  # text, basis
    places: list[tuple[str, str]]  # file:line, code
    fixes: list[str]
    caution: str
    explained_by: str
    tried: str  # what became of it in this run
    command: str
    change: Change | None
    kind: Literal["finding"] = "finding"


Block = Table | Figure | Note | Pairs | Checks | Change | FindingView


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page. A folded one is closed until it is opened."""

    id: str
    title: str
    blocks: list[Block]
    lead: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """A headline figure."""

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """The whole report."""

    title: str
    verdict: str
    proof: str  # the result of the trials in a sentence; "" without trials
    proof_tone: Literal["good", "plain", "bad"]
    subtitle: str
    tiles: list[Tile]
    sections: list[Section]
    footer: list[str]
