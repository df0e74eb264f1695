"""What every record on disk shares: strict fields, frozen values, a schema version."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = 1


class Record(BaseModel):
    """A part of a document: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class Document(Record):
    """A whole file on disk or a whole `--json` answer."""

    schema_version: int = SCHEMA_VERSION
