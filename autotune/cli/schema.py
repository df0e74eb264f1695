"""`autotune schema`: the JSON Schema of everything `--json` answers and a run folder holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from autotune.cli.common import current_screen, output_options
from autotune.errors import InputError

if TYPE_CHECKING:
    from autotune.records.base import Document


@click.command("schema", epilog="Example: autotune schema diagnosis")
@click.argument("name", required=False)
@output_options
def command(name: str | None) -> None:
    """Print the JSON Schema of NAME, an answer or a record; without NAME list them."""
    from autotune.records.answers import SchemaNames
    from autotune.rules.problems import did_you_mean

    screen = current_screen()
    known = schemas()
    if name is None:
        if screen.as_json:
            screen.document(SchemaNames(schemas=sorted(known)))
            return
        for key in sorted(known):
            screen.answer(f"{key:<20} {_summary(known[key])}")
        return
    if name not in known:
        hint = did_you_mean(name, known, join="did you mean {}?") or "autotune schema lists them"
        raise InputError(f"there is no schema '{name}'", hint=hint, code="schema-unknown")
    click.echo(json.dumps(schema_of(known[name]), indent=1))


def schemas() -> dict[str, type[Document]]:
    """Every document by its name in kebab case."""
    import pkgutil
    from importlib import import_module

    import autotune.records
    from autotune.records.base import Document

    found: dict[str, type[Document]] = {}
    for module in pkgutil.iter_modules(autotune.records.__path__):
        for value in vars(import_module(f"autotune.records.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Document) and value is not Document:
                found[_kebab(value.__name__)] = value
    return found


def schema_of(document: type[Document]) -> dict[str, object]:
    """JSON Schema 2020-12 of one document, as it is written."""
    from autotune.records.base import SCHEMA_VERSION

    schema = document.model_json_schema(mode="serialization")
    schema["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _kebab(name: str) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")


def _summary(document: type[Document]) -> str:
    return (document.__doc__ or "").strip().splitlines()[0]
