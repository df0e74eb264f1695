"""The table of a score on the terminal, and docs/diagnosis.md."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from bench.faults.analyse import Answer
from bench.faults.gpu import Beside
from bench.faults.score import NOTHING, Mark, Totals

DOCS = Path(__file__).parents[2] / "docs" / "diagnosis.md"
FAILURE_CHARS = 120


def percent(share: float | None) -> str:
    """A share as text; a dash where nothing counted."""
    return "-" if share is None else f"{100 * share:.0f} %"


def rows(marks: list[Mark]) -> list[tuple[str, str, str, str, str, str]]:
    """id, first, named, place, false alarms, seconds."""
    out = []
    for m in marks:
        if m.case.healthy:
            first = named = place = ""
        else:
            first = "yes" if m.first else "no"
            named = first_named(m)
            place = {True: "yes", False: "no", None: "-"}[m.pointed]
        alarms = ", ".join(said.rule for said in m.false_alarms) or "-"
        if failed(m.answer):
            alarms = failed(m.answer)
        out.append((m.case.id, first, named, place, alarms, f"{m.answer.seconds:.0f}"))
    return out


def failed(answer: Answer) -> str:
    """Why a job has no diagnosis, on one line; nothing where it has one."""
    if answer.findings or not answer.failure:
        return ""
    said = answer.failure.strip().splitlines()[-1]
    return f"failed: {said if len(said) <= FAILURE_CHARS else said[: FAILURE_CHARS - 3] + '...'}"


def unanswered(marks: list[Mark]) -> list[str]:
    """The jobs without a diagnosis."""
    return [m.case.id for m in marks if failed(m.answer)]


def first_named(m: Mark) -> str:
    """`yes` or `no`; for pairs how many of the causes."""
    if m.planted == 1:
        return "yes" if m.all_named else "no"
    return f"{m.named} of {m.planted}"


def summary(totals: Totals) -> list[str]:
    """The sentences under a table."""
    return [
        f"single faults: {totals.single_named} of {totals.single} named ({percent(totals.recall)}), "
        f"{totals.single_first} named first ({percent(totals.first_share)})",
        f"pairs and triples: {totals.pair_causes_named} of {totals.pair_causes} causes named, "
        f"{totals.pairs_first} of {totals.pairs} jobs with one of them first",
        f"false alarms on sick jobs: {totals.false_alarms}",
        f"healthy jobs: {totals.healthy_clean} of {totals.healthy} without a finding, "
        f"{totals.healthy_findings} finding{'' if totals.healthy_findings == 1 else 's'} in all",
        f"time: {totals.seconds / 60:.1f} min",
    ]


def terminal(marks: list[Mark], totals: Totals) -> str:
    """Table and totals as text."""
    head = ("job", "first", "named", "place", "false alarms", "s")
    table = [head, *rows(marks)]
    widths = [max(len(row[n]) for row in table) for n in range(len(head))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    none = unanswered(marks)
    untold = [f"without an answer, and counted as missed: {', '.join(none)}"] if none else []
    return "\n".join([*lines, "", *summary(totals), *untold])


def totals_json(totals: Totals) -> dict[str, object]:
    """The totals with both shares."""
    return {**asdict(totals), "recall": totals.recall, "first_share": totals.first_share}


def slowdown(row: Beside) -> str:
    """Sick against healthy with the number of timed steps of each."""
    if row.slowdown is None or row.steps is None:
        return "-"
    return f"{row.slowdown:.2f}x ({row.steps[0]}/{row.steps[1]})"


def place(row: Beside) -> str:
    """Where a planted cause stands."""
    return "first" if row.mark.first else "first of own" if row.first_of_own else "-"


def beside_summary(rows: list[Beside], not_run: dict[str, str]) -> list[str]:
    """What the twins add to the strict counts."""
    compared = [row for row in rows if row.twin is not None]
    named = sum(row.mark.first for row in compared)
    untold = [f"not run: {name} ({why})" for name, why in not_run.items()]
    if not compared:
        return ["no healthy twin was run", *untold]
    return [
        f"beside their healthy twins: {len(compared)} of {len(rows)} sick jobs; {named} named first, "
        f"{sum(row.first_of_own for row in compared)} first of what the twin does not get",
        f"false alarms there: {sum(len(row.shared) for row in compared)} also of the twin, "
        f"{sum(len(row.own) for row in compared)} of the sick job only",
        *_costly_summary(rows),
        *untold,
    ]


def _costly_summary(rows: list[Beside]) -> list[str]:
    """The counts without the faults that cost nothing where this was run; nobody need name those."""
    idle = [row.mark.case.id for row in rows if row.costs_nothing]
    if not idle:
        return []
    costly = [row for row in rows if not row.costs_nothing]
    return [
        f"cost nothing here (less than {NOTHING}x): {', '.join(idle)}",
        f"without those: {sum(row.mark.all_named for row in costly)} of {len(costly)} named, "
        f"{sum(row.mark.first for row in costly)} named first, "
        f"{sum(row.first_of_own for row in costly)} first of what the twin does not get",
    ]


def beside_lines(rows: list[Beside], not_run: dict[str, str]) -> list[str]:
    """The comparison with the twins for the terminal."""
    lines = [
        f"{row.mark.case.id:36} {slowdown(row):>16}  {place(row):12}  only here: {', '.join(row.own) or '-'}"
        for row in rows
        if row.twin is not None
    ]
    return [*lines, "", *beside_summary(rows, not_run)]
