"""`autotune facts`: the catalogue of facts, or their values in a run."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.common import chosen_run, current_screen, output_options, runs_dir_option


@click.command("facts", epilog="Example: autotune facts padding")
@click.argument("pattern", required=False)
@click.option("--run", "run_name", help="Show the values of this run ('latest' for the newest).")
@runs_dir_option
@output_options
def command(pattern: str | None, run_name: str | None, runs_dir: Path) -> None:
    """List the facts that rules can use: name, type, unit, meaning and what brings them.

    PATTERN keeps the facts whose name or meaning holds it.
    """
    from autotune.facts.catalogue import catalogue
    from autotune.records.answers import FactList, FactRow

    screen = current_screen()
    facts = [
        fact
        for fact in catalogue().values()
        if not pattern or pattern.lower() in fact.name or pattern.lower() in fact.meaning.lower()
    ]
    sheet = None
    if run_name:
        from autotune.records.facts import FactSheet
        from autotune.store import read_record

        sheet = read_record(chosen_run(runs_dir, run_name) / "facts.json", FactSheet)
    if screen.as_json:
        rows = [
            FactRow(
                name=fact.name,
                type=fact.type,
                unit=fact.unit,
                meaning=fact.meaning,
                source=fact.source,
                choices=list(fact.choices),
                decided_by=fact.decided_by,
                in_run=sheet.get(fact.name) if sheet is not None else None,
            )
            for fact in facts
        ]
        screen.document(FactList(facts=rows))
        return
    if not facts:
        screen.answer(f"no fact has '{pattern}' in its name or meaning")
        return
    width = max(len(fact.name) for fact in facts)
    for fact in facts:
        if sheet is None:
            unit = f" [{fact.unit}]" if fact.unit else ""
            screen.answer(f"{fact.name:<{width}}  {fact.type}{unit}: {fact.meaning} ({fact.source})")
            continue
        seen = sheet.get(fact.name)
        if seen.state == "value":
            shown = f"{seen.value:.4g}" if isinstance(seen.value, float) else str(seen.value)
            basis = f"; {seen.basis}" if seen.basis else ""
            screen.answer(f"{fact.name:<{width}}  {shown} {fact.unit} ({seen.source}{basis})")
        else:
            screen.answer(f"{fact.name:<{width}}  {seen.state}: {seen.reason}")
