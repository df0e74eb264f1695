"""From what a run holds to the page. Pure; a section without data is absent, never empty."""

from __future__ import annotations

from autotune.report.html.gather import Material
from autotune.report.html.sections import (
    batches,
    checks,
    device,
    findings,
    headline,
    ladder,
    memory,
    split,
    steps,
    tables,
    timeline,
    trials,
)
from autotune.report.html.view import Page

_SECTIONS = (
    ladder.section,
    timeline.section,
    split.section,
    findings.section,
    trials.section,
    tables.section,
    batches.section,
    device.section,
    memory.section,
    steps.section,
    checks.undecided,
    checks.passed,
    checks.not_applicable,
    checks.notes,
)


def compose(material: Material) -> Page:
    """The page of a run."""
    made = [make(material) for make in _SECTIONS]
    sentence, tone = headline.proof(material)
    return Page(
        title=f"autotune: {material.run}",
        verdict=material.diagnosis.verdict,
        proof=sentence,
        proof_tone=tone,
        subtitle=headline.subtitle(material),
        tiles=headline.tiles(material),
        sections=[section for section in made if section is not None],
        footer=headline.footer(material),
    )
