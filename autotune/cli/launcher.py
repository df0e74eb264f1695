"""The option of the verbs that start a job again and again: here, or through a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autotune.errors import InputError

if TYPE_CHECKING:
    from autotune.observe.submit import Submitter

F = TypeVar("F", bound=Callable[..., Any])


def launcher_options(function: F) -> F:
    """Where the starts of the job run."""
    for option in (
        click.option(
            "--launcher",
            type=click.Choice(["here", "slurm"]),
            default="here",
            show_default=True,
            help="Start the job here, or submit each start to Slurm and wait.",
        ),
        click.option(
            "--slurm-option",
            "slurm_options",
            multiple=True,
            metavar="NAME=VALUE",
            help="A parameter of submitit, such as slurm_partition=gpu or timeout_min=30 (repeatable).",
        ),
    ):
        function = option(function)
    return function


def launcher_of(launcher: str, slurm_options: Sequence[str]) -> Submitter | None:
    """The function that starts the job; None for this machine. Raises InputError."""
    if launcher == "here":
        if slurm_options:
            raise InputError("--slurm-option needs --launcher slurm")
        return None
    from autotune.observe.submit import Submitter

    parameters: dict[str, str | int] = {}
    for text in slurm_options:
        name, found, value = text.partition("=")
        if not found or not name:
            raise InputError(f"--slurm-option {text!r} is not NAME=VALUE")
        parameters[name] = int(value) if value.isdigit() else value
    return Submitter("slurm", parameters)
