"""What a shell completes beyond verbs and options: names of runs, ids of rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click


def run_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Runs of the folder the line names, newest first, and "latest"."""
    from autotune.store import DEFAULT_RUNS_DIR, list_runs

    folder = Path(ctx.params.get("runs_dir") or DEFAULT_RUNS_DIR)
    names = ["latest", *(run.name for run in reversed(list_runs(folder)))]
    return [name for name in names if incomplete in name]


def rule_ids(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Built-in rules and their categories."""
    from autotune.data import data_dir
    from autotune.rules.load import rule_files

    folder = data_dir("rules")
    ids = [path.relative_to(folder).with_suffix("").as_posix() for path in rule_files(folder)]
    categories = sorted({f"{rule.split('/', 1)[0]}/*" for rule in ids})
    return [name for name in [*ids, *categories] if name.startswith(incomplete)]
