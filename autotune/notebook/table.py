"""A small typed table: rows as dicts, and frames of pandas or polars where one of them is installed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from autotune.errors import InputError

if TYPE_CHECKING:
    import pandas
    import polars

Cell = str | int | float | bool | None
Row = dict[str, Cell]
_PANDAS = {str: "object", int: "Int64", float: "float64", bool: "boolean"}
_SHOWN_ROWS = 20


@dataclass(frozen=True)
class Table:
    """Rows with named, typed columns. A cell is None where nothing was measured; it is never zero instead."""

    columns: dict[str, type]
    rows: Sequence[Row]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        """Short, for a prompt: the rows are in `rows`, and a notebook shows the table itself."""
        rows = f"{len(self.rows)} row{'' if len(self.rows) == 1 else 's'}"
        return f"<Table of {rows}: {', '.join(self.columns)}>"

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def column(self, name: str) -> list[Cell]:
        """The cells of one column. Raises InputError for a name the table does not have."""
        if name not in self.columns:
            raise InputError(f"there is no column '{name}'", hint=f"there are {', '.join(self.columns)}")
        return [row[name] for row in self.rows]

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas frame; whole numbers and booleans keep their type beside missing cells.

        Raises InputError when pandas is not installed.
        """
        pd = _load("pandas")
        data = {
            name: pd.Series([row[name] for row in self.rows], dtype=_PANDAS[kind])
            for name, kind in self.columns.items()
        }
        frame: pandas.DataFrame = pd.DataFrame(data, columns=list(self.columns))
        return frame

    def to_polars(self) -> polars.DataFrame:
        """A polars frame. Raises InputError when polars is not installed."""
        pl = _load("polars")
        types = {str: pl.String, int: pl.Int64, float: pl.Float64, bool: pl.Boolean}
        schema = {name: types[kind] for name, kind in self.columns.items()}
        frame: polars.DataFrame = pl.DataFrame(
            {name: [row[name] for row in self.rows] for name in self.columns}, schema=schema
        )
        return frame

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell_text(row[name]))}</td>" for name in self.columns) + "</tr>"
            for row in self.rows[:_SHOWN_ROWS]
        )
        more = len(self.rows) - _SHOWN_ROWS
        tail = f"<p>and {more} more rows</p>" if more > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{tail}"


def cell_text(cell: Cell) -> str:
    """A cell for people: a dash where there is nothing, four significant digits, thousands apart."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as fault:
        raise InputError(
            f"{name} cannot be imported: {fault}",
            hint=f"pip install {name}, or use the table's .rows, which need neither pandas nor polars",
        ) from None
