"""`autotune rules`: list, explain, lint, test and write rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.common import chosen_run, current_screen, output_options, runs_dir_option
from autotune.cli.complete import rule_ids
from autotune.cli.groups import SuggestingGroup
from autotune.cli.kinds import PathValue
from autotune.errors import Exit, InputError

if TYPE_CHECKING:
    from autotune.records.facts import FactSheet
    from autotune.rules.load import RuleSet

_PACKS = click.option(
    "--rules",
    "rule_dirs",
    type=PathValue(file_okay=False),
    multiple=True,
    help="A folder of your own rules (repeatable).",
)
_FOLDERS = click.argument("folders", nargs=-1, type=PathValue(exists=True, file_okay=False))


@click.group(
    "rules", cls=SuggestingGroup, epilog="Example: autotune rules explain attention/eager --run latest"
)
def command() -> None:
    """List, explain, lint, test and write rules."""


def _load(rule_dirs: tuple[Path, ...]) -> RuleSet:
    from autotune.data import data_dir
    from autotune.facts.catalogue import catalogue
    from autotune.rules.load import load_rules

    return load_rules([data_dir("rules"), *rule_dirs], catalogue=catalogue())


def _sheet(runs_dir: Path, run_name: str | None) -> FactSheet | None:
    if run_name is None:
        return None
    from autotune.records.facts import FactSheet
    from autotune.store import read_record

    return read_record(chosen_run(runs_dir, run_name) / "facts.json", FactSheet)


@command.command("list", epilog="Example: autotune rules list --rules my_rules")
@_PACKS
@output_options
def list_rules(rule_dirs: tuple[Path, ...]) -> None:
    """List the rules: id, severity, parity tier, title."""
    from autotune.records.answers import RuleList, RuleRow
    from autotune.rules.expression import fact_names
    from autotune.rules.pages import condition_nodes

    screen = current_screen()
    rules = sorted(_load(rule_dirs).rules, key=lambda loaded: loaded.id)
    if screen.as_json:
        rows = [
            RuleRow(
                id=loaded.id,
                title=loaded.rule.title,
                severity=loaded.rule.severity,
                confidence=loaded.rule.confidence,
                category=loaded.rule.category,
                parity=loaded.rule.parity,
                surfaces=list(dict.fromkeys(fix.surface for fix in loaded.rule.fix)),
                facts=list(dict.fromkeys(n for node in condition_nodes(loaded) for n in fact_names(node))),
                pack=loaded.pack,
            )
            for loaded in rules
        ]
        screen.document(RuleList(rules=rows))
        return
    width = max(len(loaded.id) for loaded in rules)
    for loaded in rules:
        parity = loaded.rule.parity or "-"
        screen.answer(f"{loaded.id:<{width}}  {loaded.rule.severity:<8}  {parity:<11}  {loaded.rule.title}")


@command.command(epilog="Example: autotune rules explain attention/eager --run latest")
@click.argument("rule_id", shell_complete=rule_ids)
@click.option(
    "--run", "run_name", help="Show the condition with this run's values ('latest' for the newest)."
)
@_PACKS
@runs_dir_option
@output_options
def explain(rule_id: str, run_name: str | None, rule_dirs: tuple[Path, ...], runs_dir: Path) -> None:
    """Show one rule: when it fires, what it gains, its fixes and cautions."""
    from dataclasses import asdict

    from autotune.facts.catalogue import catalogue
    from autotune.records.answers import RuleExplanation
    from autotune.rules.explain import as_text
    from autotune.rules.explain import explain as explain_rule
    from autotune.rules.problems import did_you_mean

    screen = current_screen()
    rules = {loaded.id: loaded for loaded in _load(rule_dirs).rules}
    if rule_id not in rules:
        hint = did_you_mean(rule_id, rules, join="did you mean {}?") or "autotune rules list shows all"
        if not rule_dirs:
            hint += " (for a rule of your own add --rules DIR)"
        raise InputError(f"there is no rule '{rule_id}'", hint=hint, code="rule-unknown")
    explanation = explain_rule(rules[rule_id], catalogue(), _sheet(runs_dir, run_name))
    if screen.as_json:
        screen.document(RuleExplanation.model_validate(asdict(explanation)))
        return
    screen.answer(as_text(rules[rule_id], explanation))


@command.command("lint", epilog="Example: autotune rules lint my_rules")
@_FOLDERS
@output_options
@click.pass_context
def lint_rules(ctx: click.Context, folders: tuple[Path, ...]) -> None:
    """Check rule files: all errors of all files at once. Without FOLDERS the built-in rules."""
    from autotune.data import data_dir
    from autotune.facts.catalogue import catalogue
    from autotune.records.answers import RuleProblem, RuleProblems
    from autotune.rules.lint import lint

    screen = current_screen()
    built_in = data_dir("rules")
    report = lint(
        [built_in, *folders],
        catalogue=catalogue(),
        root=Path.cwd(),
        checked=folders or (built_in,),
    )
    if screen.as_json:
        rows = [
            RuleProblem(path=p.path, line=p.line, column=p.column, level=p.level, message=p.message)
            for p in report.problems
        ]
        screen.document(RuleProblems(problems=rows))
    else:
        for problem in report.problems:
            screen.answer(str(problem))
        errors, count = len(report.errors), report.checked
        warnings = len(report.problems) - errors
        parts = ((count, "rule"), (errors, "error"), (warnings, "warning"))
        screen.answer(", ".join(f"{number} {word}{'s' * (number != 1)}" for number, word in parts))
    ctx.exit(Exit.BAD_INPUT if report.errors else Exit.DONE)


@command.command("test", epilog="Example: autotune rules test my_rules")
@_FOLDERS
@output_options
@click.pass_context
def test_rules(ctx: click.Context, folders: tuple[Path, ...]) -> None:
    """Run the examples inside rule files. Without FOLDERS those of the built-in rules."""
    from autotune.facts.catalogue import catalogue
    from autotune.records.answers import ExampleResult, ExampleResults
    from autotune.rules.examples import run_examples

    screen = current_screen()
    packs = {str(folder) for folder in folders}
    rules = [loaded for loaded in _load(folders).rules if not packs or loaded.pack in packs]
    results = run_examples(rules, catalogue())
    failed = [result for result in results if result.fault]
    if screen.as_json:
        rows = [ExampleResult(rule=r.rule, example=r.example, fault=r.fault) for r in results]
        screen.document(ExampleResults(examples=rows))
    else:
        for result in failed:
            screen.answer(f"{result.rule}: {result.example}: {result.fault}")
        examples = f"{len(results)} example{'s' * (len(results) != 1)}"
        screen.answer(f"{examples} of {len(rules)} rule{'s' * (len(rules) != 1)}, {len(failed)} failed")
    if not results:
        raise InputError(
            "no example ran", hint="a rule lists its examples under the key 'examples'", code="rule-examples"
        )
    ctx.exit(Exit.BAD_INPUT if failed else Exit.DONE)


@command.command("new", epilog="Example: autotune rules new batching/my-rule --into my_rules")
@click.argument("rule_id")
@click.option(
    "--from-run", "run_name", help="Fill the example with this run's values ('latest' for the newest)."
)
@click.option(
    "--into",
    type=PathValue(file_okay=False),
    default=Path("rules"),
    show_default=True,
    help="Folder of your rules.",
)
@runs_dir_option
@output_options
def new_rule(rule_id: str, run_name: str | None, into: Path, runs_dir: Path) -> None:
    """Write a new rule file that already lints, to be filled in."""
    from autotune.errors import FilesError
    from autotune.facts.catalogue import catalogue
    from autotune.records.answers import RuleFile
    from autotune.rules.scaffold import new_rule as scaffold

    text = scaffold(rule_id, catalogue(), _sheet(runs_dir, run_name))
    path = into / f"{rule_id}.yaml"
    if path.exists():
        raise InputError(
            "this rule exists already",
            where=str(path),
            hint="edit it or choose another id",
            code="rule-exists",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as fault:
        raise FilesError(f"cannot write: {fault.strerror}", where=str(path)) from fault
    screen = current_screen()
    if screen.as_json:
        screen.document(RuleFile(path=str(path)))
    else:
        screen.answer(
            f"{path}\nnext: edit it, then  autotune rules lint {into}  and  autotune rules test {into}"
        )


@command.command(epilog="Example: autotune rules schema > rule.schema.json")
@output_options
def schema() -> None:
    """Print the JSON Schema of a rule file, for editors."""
    from autotune.rules.schema import schema_text

    click.echo(schema_text(), nl=False)


@command.command(hidden=True)
@click.argument("folder", type=PathValue(exists=True, file_okay=False))
def pages(folder: Path) -> None:
    """Write the generated documentation pages into FOLDER."""
    from autotune.cli.pages import commands_page
    from autotune.facts.catalogue import catalogue
    from autotune.rules.pages import facts_page, rules_page

    rules = _load(()).rules
    (folder / "rules.md").write_text(rules_page(rules), encoding="utf-8")
    (folder / "facts.md").write_text(facts_page(catalogue(), rules), encoding="utf-8")
    (folder / "commands.md").write_text(commands_page(), encoding="utf-8")


@command.command(epilog="Example: autotune rules calibration --json")
@runs_dir_option
@output_options
def calibration(runs_dir: Path) -> None:
    """Compare the bounds that rules gave with what trials measured, over all runs."""
    from dataclasses import asdict

    from autotune.optimize.calibration import per_rule, trial_results
    from autotune.records.answers import Calibration, RuleCalibrationRow, TrialRow

    screen = current_screen()
    results = trial_results(runs_dir)
    rows = per_rule(results)
    if screen.as_json:
        trials = [
            TrialRow.model_validate({**asdict(result), "within_bound": result.within_bound})
            for result in results
        ]
        summed = [RuleCalibrationRow.model_validate(asdict(row)) for row in rows]
        screen.document(Calibration(rules=summed, trials=trials))
        return
    if not rows:
        screen.answer(f"no verified trial in {runs_dir}; autotune optimize makes them")
        return
    width = max(len(row.rule) for row in rows)
    screen.answer(f"{'rule':<{width}}  trials  kept  bound   measured  reached  above bound")
    for row in rows:
        bound = f"{row.predicted_upper:.2f}x" if row.predicted_upper is not None else "-"
        reached = f"{100 * row.reached_frac:.0f} %" if row.reached_frac is not None else "-"
        counts = f"{row.trials:>6}  {row.kept:>4}"
        screen.answer(
            f"{row.rule:<{width}}  {counts}  {bound:<6}  {row.measured:<8.2f}  {reached:<7}  "
            f"{row.above_bound}"
        )
    screen.answer("bound and measured are medians; a trial of several rules counts for each of them")
