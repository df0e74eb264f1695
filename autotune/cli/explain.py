"""`autotune explain`: the page of an error code, an exit code or a rule."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.common import current_screen, output_options, runs_dir_option
from autotune.cli.kinds import PathValue
from autotune.errors import InputError


@click.command("explain", epilog="Example: autotune explain attention/eager --run latest")
@click.argument("code", required=False)
@click.option("--run", "run_name", help="Of a rule: its condition with this run's values ('latest': newest).")
@click.option(
    "--rules",
    "rule_dirs",
    type=PathValue(file_okay=False),
    multiple=True,
    help="Of a rule: a folder of your own rules (repeatable).",
)
@runs_dir_option
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    code: str | None,
    run_name: str | None,
    rule_dirs: tuple[Path, ...],
    runs_dir: Path,
) -> None:
    """Explain an error code (the word in brackets), an exit code or a rule; without CODE list them all."""
    from autotune.cli.rules import explain as explain_rule
    from autotune.error_codes import CODES, EXIT_MEANINGS
    from autotune.errors import Exit
    from autotune.records.answers import CodePage, CodePages
    from autotune.rules.problems import did_you_mean

    screen = current_screen()
    pages = [
        CodePage(code=name, exit_code=int(page.exit_code), means=page.means, todo=page.todo)
        for name, page in CODES.items()
    ]
    pages += [CodePage(code=str(int(e)), exit_code=int(e), means=EXIT_MEANINGS[e]) for e in Exit]
    if run_name is not None and "/" not in (code or ""):
        raise InputError("--run shows the condition of a rule, written category/name", code="usage")
    if code is None:
        if screen.as_json:
            screen.document(CodePages(codes=pages))
            return
        for page in pages:
            screen.answer(f"{page.code:<26}exit {page.exit_code:<4} {page.means}")
        return
    if "/" in code:
        ctx.invoke(explain_rule, rule_id=code, run_name=run_name, rule_dirs=rule_dirs, runs_dir=runs_dir)
        return
    found = next((page for page in pages if page.code == code.strip("[]")), None)
    if found is None:
        near = _rule_named(code) or did_you_mean(code, CODES, join="{}").strip("'")
        hint = f"did you mean '{near}'?" if near else "autotune explain lists all"
        raise InputError(f"there is no code '{code}'", hint=hint, code="code-unknown")
    if screen.as_json:
        screen.document(CodePages(codes=[found]))
        return
    exit_code = Exit(found.exit_code)
    screen.answer(f"{found.code} (exit code {found.exit_code})\n\n{found.means}")
    if found.todo:
        screen.answer(f"What to do: {found.todo}")
    if found.code.isdigit():
        names = [name for name, page in CODES.items() if page.exit_code == exit_code]
        if names:
            screen.answer(f"Error codes that leave with it: {', '.join(names)}")
    else:
        screen.answer(f"Exit code {found.exit_code}: {EXIT_MEANINGS[exit_code]}")


def _rule_named(name: str) -> str:
    """The built-in rule of this name in whatever category; empty when there is none, or several."""
    from autotune.data import data_dir
    from autotune.rules.load import rule_files

    folder = data_dir("rules")
    found = [path for path in rule_files(folder) if path.stem == name]
    return found[0].relative_to(folder).with_suffix("").as_posix() if len(found) == 1 else ""
