"""Types of option values that refuse what click's own would let through."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from autotune.records.terms import LARGEST_NUMBER


class PathValue(click.Path):
    """A path: an empty text is none (an unset shell variable), nor is one with a zero byte."""

    def __init__(self, **how: Any) -> None:
        super().__init__(path_type=Path, **how)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """As click, after the name itself was looked at."""
        text = os.fspath(value)
        if not text:
            self.fail("the path is empty", param, ctx)
        if "\0" in text:
            self.fail("the path holds a zero byte", param, ctx)
        return super().convert(value, param, ctx)


class NumberValue(click.FloatRange):
    """A number that can be calculated with: nan, inf and what nears it are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click, and not beyond what can be calculated with."""
        number = super().convert(value, param, ctx)
        if not abs(number) <= LARGEST_NUMBER:  # nan compares with nothing
            self.fail(f"{value} is no number to calculate with", param, ctx)
        return number
