"""What can be read of a file that breaks the form of a rule, so that all its other faults are told too."""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from autotune.rules.model import Rule
from autotune.rules.steps import STEPS


class Gap(str):
    """Stands where a text is missing or is none; checks pass over it."""

    __slots__ = ()


GAP = Gap("-")


def partial_rule(data: dict[str, Any]) -> Rule:
    """A rule of whatever is right in `data`, with gaps; good for looking for faults only."""
    made = _model(Rule, data)
    assert isinstance(made, Rule)
    return made


def _model(model: type[BaseModel], data: dict[str, Any]) -> BaseModel:
    values: dict[str, Any] = {}
    for name, entry in model.model_fields.items():
        if name in data:
            values[name] = _value(entry.annotation, data[name])
        elif not entry.is_required():
            values[name] = entry.get_default(call_default_factory=True)
        else:
            values[name] = _empty(entry.annotation)
    if isinstance(values.get("gain"), dict):
        values["gain"] = [values["gain"]]
    return model.model_construct(**values)


def _value(annotation: Any, given: Any) -> Any:
    annotation = _plain(annotation)
    inner = get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _model(annotation, given if isinstance(given, dict) else {})
    if get_origin(annotation) is list:
        if isinstance(given, dict) and _is_model(inner[0]):  # a single gain stands without a list
            given = [given]
        return [_value(inner[0], item) for item in given] if isinstance(given, list) else []
    if get_origin(annotation) is dict and isinstance(given, dict):
        return {str(key): _value(inner[1], value) for key, value in given.items()}
    action = given.get("action") if isinstance(given, dict) else None
    step = next((s for s in STEPS if isinstance(action, str) and action in _actions(s)), None)
    if step is not None:
        return _model(step, given)
    try:
        return _adapter(annotation).validate_python(given)
    except ValidationError:
        return _empty(annotation)


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def _empty(annotation: Any) -> Any:
    annotation = _plain(annotation)
    origin = get_origin(annotation)
    if origin in (list, dict):
        return origin()
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _model(annotation, {})
    members = get_args(annotation) if origin in (Union, types.UnionType) else ()
    return None if type(None) in members else GAP


def _is_model(annotation: Any) -> bool:
    plain = _plain(annotation)
    return isinstance(plain, type) and issubclass(plain, BaseModel)


def _actions(step: type[BaseModel]) -> tuple[Any, ...]:
    return get_args(step.model_fields["action"].annotation)


def _plain(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation
