"""Tables of a run's records: facts, findings, rungs of the ladder, pairs of the trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from autotune.notebook.table import Row, Table

if TYPE_CHECKING:
    from autotune.records.facts import FactSheet
    from autotune.records.findings import Finding
    from autotune.records.ladder import Ladder
    from autotune.records.verdict import Verdict


def facts_table(sheet: FactSheet) -> Table:
    """One row per catalogue fact; `number` is set for numbers and booleans, `text` for everything known."""
    from autotune.facts.catalogue import catalogue

    columns: dict[str, type] = {
        "fact": str,
        "state": str,  # value | absent | not-applicable
        "number": float,
        "text": str,
        "unit": str,
        "source": str,
        "basis": str,
        "reason": str,
        "meaning": str,
    }
    rows: list[Row] = []
    for fact in catalogue().values():
        found = sheet.get(fact.name)
        value = found.value
        known = found.state == "value"
        rows.append(
            {
                "fact": fact.name,
                "state": found.state,
                "number": float(value) if isinstance(value, (bool, int, float)) else None,
                "text": (", ".join(value) if isinstance(value, list) else str(value)) if known else None,
                "unit": fact.unit or "",
                "source": found.source,
                "basis": found.basis,
                "reason": found.reason,
                "meaning": fact.meaning,
            }
        )
    return Table(columns, rows)


def findings_table(findings: list[Finding]) -> Table:
    """One row per finding, the most important first. `ratio_upper` bounds the gain; it is not the gain."""
    columns: dict[str, type] = {
        "rule": str,
        "title": str,
        "severity": str,
        "confidence": str,
        "ratio_upper": float,
        "place": str,
        "fix": str,
        "surface": str,
        "applicability": str,
        "parity": str,
    }
    rows: list[Row] = []
    for finding in findings:
        fix = finding.fixes[0] if finding.fixes else None
        site = finding.sites[0] if finding.sites else None
        rows.append(
            {
                "rule": finding.rule,
                "title": finding.title,
                "severity": finding.severity,
                "confidence": finding.confidence,
                "ratio_upper": finding.gain.ratio_upper,
                "place": f"{site.file}:{site.line}" if site else None,
                "fix": fix.title if fix else None,
                "surface": fix.surface if fix else None,
                "applicability": fix.applicability if fix else None,
                "parity": finding.parity,
            }
        )
    return Table(columns, rows)


def rungs_table(ladder: Ladder | None) -> Table:
    """One row per kept change of an optimize loop; the first row is the job as it was."""
    columns: dict[str, type] = {
        "rung": int,
        "name": str,
        "rules": str,
        "ratio_to_previous": float,
        "low_to_previous": float,
        "high_to_previous": float,
        "ratio_to_first": float,
        "low_to_first": float,
        "high_to_first": float,
        "pairs": int,
        "useful_tokens_per_s": float,
        "step_ms": float,
        "projected_hours": float,
        "peak_memory_gib": float,
        "parity": str,
    }
    rows: list[Row] = []
    for number, rung in enumerate(ladder.rungs if ladder else ()):
        before, first = rung.interval_to_previous, rung.interval_to_first
        rows.append(
            {
                "rung": number,
                "name": rung.name,
                "rules": ", ".join(rung.rules),
                "ratio_to_previous": rung.ratio_to_previous,
                "low_to_previous": before[0] if before else None,
                "high_to_previous": before[1] if before else None,
                "ratio_to_first": rung.ratio_to_first,
                "low_to_first": first[0] if first else None,
                "high_to_first": first[1] if first else None,
                "pairs": rung.pairs,
                "useful_tokens_per_s": rung.useful_tokens_per_s,
                "step_ms": rung.step_ms,
                "projected_hours": rung.projected_hours,
                "peak_memory_gib": rung.peak_memory_gib,
                "parity": rung.parity,
            }
        )
    return Table(columns, rows)


def pairs_table(verdicts: Mapping[str, Verdict]) -> Table:
    """One row per block and contrast: how many times as fast the candidate was in that pair of launches."""
    columns: dict[str, type] = {
        "trial": str,  # folder of the verdict, relative to the run
        "reference": str,
        "candidate": str,
        "pair": int,
        "ratio": float,
        "unit": str,  # of the figures that were divided
    }
    rows: list[Row] = []
    for folder, verdict in verdicts.items():
        for contrast in verdict.contrasts:
            for number, ratio in enumerate(contrast.pair_ratios, 1):
                rows.append(
                    {
                        "trial": folder,
                        "reference": contrast.reference,
                        "candidate": contrast.candidate,
                        "pair": number,
                        "ratio": ratio,
                        "unit": contrast.unit,
                    }
                )
    return Table(columns, rows)
