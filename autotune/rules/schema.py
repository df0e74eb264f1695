"""The JSON Schema of a rule, so that editors complete and check rule files."""

from __future__ import annotations

import json
from typing import Any

FILE_NAME = "rule.schema.json"


def rule_schema() -> dict[str, Any]:
    """The schema, from the models that check rules at load."""
    from autotune.rules.model import Rule

    schema = Rule.model_json_schema()
    one = schema["properties"]["gain"]
    way = one.pop("items")
    one.pop("type", None)
    one["anyOf"] = [way, {"type": "array", "items": way}]  # a single way may stand without a list
    schema["title"] = "autotune rule"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def schema_text() -> str:
    """The file as it is stored beside the rules."""
    return json.dumps(rule_schema(), indent=1, ensure_ascii=False) + "\n"
