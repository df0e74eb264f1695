"""The data a generated script is to read: is it there, and does a row have what its kind needs?"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autotune.errors import InputError
from autotune.records.script import source_type

if TYPE_CHECKING:
    from autotune.records.script import DataContext

Kind = Literal["messages", "prompt_completion", "text", "tokens"]
_COLUMNS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    ("tokens", ("input_ids",)),
    ("messages", ("messages",)),
    ("prompt_completion", ("prompt", "completion")),
    ("text", ("text",)),
)
KINDS = "; ".join(f"{kind} (a row has {' and '.join(names)})" for kind, names in _COLUMNS)


_OTHER_FILES = (".csv", ".tsv", ".txt", ".arrow", ".gz", ".zip", ".zst", ".py")


def kind_of_columns(names: Iterable[str]) -> Kind | None:
    """What a row with these columns is; None where no kind fits."""
    known = set(names)
    return next((kind for kind, needed in _COLUMNS if known.issuperset(needed)), None)


def guess_kind(source: str) -> Kind | None:
    """What a row of a JSONL file is, from its first row; None where that cannot be seen."""
    return kind_of_columns(first_keys(source) or ())


def first_keys(source: str) -> list[str] | None:
    """The keys of the first row of JSONL files; None for another source. Raises InputError for no row."""
    files = [f for f in sorted(glob.glob(source)) if f.endswith((".jsonl", ".json"))]
    if not files:
        return None
    try:
        with open(files[0], encoding="utf-8") as lines:
            row = json.loads(next(line for line in lines if line.strip()))
    except (OSError, ValueError, StopIteration):
        raise InputError(
            "the first line is no JSON object", where=files[0], hint="JSON lines: one object to a line"
        ) from None
    return [str(key) for key in row] if isinstance(row, dict) else []


def seen_kind(source: str, option: str) -> Kind:
    """The kind of rows, where it can be seen; `option` is how the user names it. Raises InputError."""
    refuse_missing(source)
    keys = first_keys(source)
    found = kind_of_columns(keys or ())
    if found is not None:
        return found
    if keys is None:
        raise InputError(
            "what a row of the data is cannot be seen from here", where=source, hint=f"add {option}: {KINDS}"
        )
    raise InputError(
        f"no kind of rows fits the keys of the first row ({', '.join(keys) or 'it has none'})",
        where=source,
        hint=f"rename them for one of {KINDS}; or add {option} and name the key that is there, as in "
        f"--set data.text_column={keys[0] if keys else 'KEY'}",
    )


def refuse_missing(source: str) -> None:
    """Raises InputError for files that are not there, or that the script cannot read."""
    how = source_type(source)
    file = source.rsplit(":", 1)[0] if how == "hook" else source
    if how == "hub":
        if Path(source).is_file():
            raise InputError(
                "the script cannot read this kind of file", where=source, hint="JSON lines or parquet"
            )
        named_on_hub = source.count("/") <= 1 and not source.startswith((".", "/", "~"))
        if Path(source).is_dir() or (named_on_hub and not source.endswith(_OTHER_FILES)):
            return
    elif (how == "hook" and not file.endswith(".py")) or glob.glob(file):
        return
    raise InputError(
        "there is no such file" if how != "hub" else "there is no such file or folder",
        where=file,
        hint="name JSON lines, parquet, file.py:NAME, or a data set of the hub",
    )


def refuse_unfit(data: DataContext) -> None:
    """Raises InputError where a file of the data is missing, or its rows lack what their kind needs."""
    from autotune.apply.script_options import text_columns

    for source in (data.source, data.eval_source):
        if source is None:
            continue
        refuse_missing(source)
        keys = first_keys(source) if source_type(source) != "hook" else None
        options = text_columns(data)
        wanted = list(options.values()) or ["input_ids"]
        lacking = [name for name in wanted if keys is not None and name not in keys]
        if lacking:
            other = [option for option, name in options.items() if name in lacking]
            named = f"--set data.{other[0]}=KEY names another; " if other else ""
            raise InputError(
                f"rows of kind {data.kind} need {' and '.join(wanted)}; the first row has "
                f"{', '.join(keys or []) or 'no keys'}",
                where=source,
                hint=f"{named}kinds are {KINDS}",
            )
