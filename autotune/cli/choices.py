"""Options that choose among changes, shared by apply, verify and optimize."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from autotune.apply.plan import Choice

F = TypeVar("F", bound=Callable[..., Any])


def choice_options(function: F) -> F:
    """--select, --exclude, --unsafe and --wheelhouse."""
    for option in (
        click.option("--select", multiple=True, help="Only this rule, or a category such as 'kernels/*'."),
        click.option("--exclude", multiple=True, help="Not this rule or category (repeatable)."),
        click.option("--unsafe", is_flag=True, help="Also changes that a person should review."),
        click.option(
            "--wheelhouse",
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            help="Folder of wheels to install packages from, without a network.",
        ),
    ):
        function = option(function)
    return function


def choice_of(select: tuple[str, ...], exclude: tuple[str, ...], unsafe: bool) -> Choice:
    """The choice these options make."""
    from autotune.apply.plan import Choice

    return Choice(select=select, exclude=exclude, unsafe=unsafe)
