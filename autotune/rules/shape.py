"""From pydantic's view of a wrong rule to a message with a place and a suggestion."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from autotune.rules.model import Rule
from autotune.rules.problems import Problem, did_you_mean
from autotune.rules.yaml_text import SourceFile

_Location = tuple[int | str, ...]


def validate(source: SourceFile) -> tuple[Rule | None, frozenset[str]]:
    """The rule of a parsed file; None with problems added to the source, and the top keys they lie under."""
    if not isinstance(source.data, dict):
        if not source.problems:
            source.problems.append(source.problem(1, 1, "a rule file holds keys such as id, title and when"))
        return None, frozenset()
    try:
        return Rule.model_validate(source.data), frozenset()
    except ValidationError as error:
        taken = {(problem.line, problem.column) for problem in source.problems}
        found = (_problem(source, item) for item in error.errors(include_url=False))
        source.problems += [p for p in found if (p.line, p.column) not in taken]
        return None, frozenset(str(item["loc"][0]) for item in error.errors(include_url=False) if item["loc"])


def _problem(source: SourceFile, item: Any) -> Problem:
    location: _Location = tuple(part for part in item["loc"])
    kind, context = str(item["type"]), dict(item.get("ctx") or {})
    last = str(location[-1]) if location else ""
    if kind == "extra_forbidden":
        known = allowed_keys(location[:-1])
        hint = did_you_mean(last, known) or f" — expected one of {', '.join(known)}"
        return source.at(location, f"unknown key '{last}'{hint}", key=True)
    if kind == "missing":
        return source.at(location[:-1], f"the key '{last}' is missing")
    if kind in ("literal_error", "enum"):
        choices = _choices(location)
        given = item.get("input")
        hint = did_you_mean(str(given), choices) or f" — expected one of {', '.join(choices)}"
        return source.at(location, f"{last} is '{given}'{hint}")
    if kind == "union_tag_invalid":
        tags = [tag.strip(" '") for tag in str(context.get("expected_tags", "")).split(",")]
        given = str(context.get("tag", ""))
        hint = did_you_mean(given, tags) or f" — expected one of {', '.join(tags)}"
        return source.at((*location, "action"), f"action is '{given}'{hint}")
    if kind == "union_tag_not_found":
        return source.at(location, "the key 'action' is missing")
    if kind == "string_pattern_mismatch":
        return source.at(location, f"{last} is '{item.get('input')}', expected category/kebab-name")
    return source.at(location, _plain(kind, item, location))


def _plain(kind: str, item: Any, location: _Location) -> str:
    names = [str(part) for part in location if isinstance(part, str)]
    name = names[-1] if names else "the rule"
    given = item.get("input")
    if kind == "value_error":
        return str(item.get("msg", "")).removeprefix("Value error, ")
    if kind == "string_type" and isinstance(given, dict):
        return f"{name} must be a text, this is a mapping; quote a text that holds ': '"
    if kind == "string_type" and isinstance(given, bool) and location[0] == "when":
        return "a condition asks for a fact, this is the same for every run"
    if kind == "string_type" and given is None:
        return f"{name} is empty; a '#' starts a comment in YAML, quote the text if it holds one"
    wanted = {
        "string_type": "a text; put it in quotes",
        "list_type": "a list (lines that start with '- ')",
        "dict_type": "a mapping (key: value)",
        "model_type": "a mapping (key: value)",
        "model_attributes_type": "a mapping (key: value)",
        "bool_type": "true or false",
        "int_type": "a whole number",
    }.get(kind)
    if wanted:
        return f"{name} must be {wanted}"
    return f"{name}: {str(item.get('msg', kind)).lower()}"


def allowed_keys(location: _Location) -> list[str]:
    """Keys a mapping at this place of a rule may have."""
    found = _descend(location)
    return list(found.model_fields) if isinstance(found, type) and issubclass(found, BaseModel) else []


def _choices(location: _Location) -> list[str]:
    found = _descend(location)
    return [str(value) for value in get_args(found)] if get_origin(found) is Literal else []


def _descend(location: _Location) -> Any:
    """The annotation that a place of a rule is checked against; discriminator values pick from a union."""
    here: Any = Rule
    for part in location:
        here = _strip(here)
        origin = get_origin(here)
        if isinstance(here, type) and issubclass(here, BaseModel):
            entry = here.model_fields.get(str(part))
            if entry is None:
                return None
            here = entry.annotation
        elif origin is list:
            here = get_args(here)[0]
        elif origin is dict:
            here = get_args(here)[1]
        elif origin in (Union, types.UnionType):
            here = next((m for m in get_args(here) if _has_action(m, part)), None)
        else:
            return None
    return _strip(here)


def _strip(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        if len(members) == 1:
            return _strip(members[0])
    return annotation


def _has_action(member: Any, action: int | str) -> bool:
    if not (isinstance(member, type) and issubclass(member, BaseModel)):
        return False
    entry = member.model_fields.get("action")
    return entry is not None and action in get_args(entry.annotation)
