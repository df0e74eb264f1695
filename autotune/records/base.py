"""What every record on disk shares: strict fields, frozen values, a schema version."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError

SCHEMA_VERSION = 1
_LONE = re.compile("[\ud800-\udfff]")


class Record(BaseModel):
    """A part of a document: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class Document(Record):
    """A whole file on disk or a whole `--json` answer."""

    schema_version: int = SCHEMA_VERSION

    def json_text(self) -> str:
        """The document as indented JSON. Bytes of a file name that are no text are written as U+FFFD."""
        try:
            return self.model_dump_json(indent=1)
        except PydanticSerializationError:
            return json.dumps(_encodable(self.model_dump(mode="json")), indent=1, ensure_ascii=False)


def _encodable(value: Any) -> Any:
    """The JSON value without lone surrogates, which UTF-8 cannot hold."""
    if isinstance(value, str):
        return _LONE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_encodable(key): _encodable(inner) for key, inner in value.items()}
    return [_encodable(inner) for inner in value] if isinstance(value, list) else value
