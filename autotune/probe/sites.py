"""Calls in user code, each recorded once with its exact span, then only counted."""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from . import frames, origins
from .core import core

_MOST = 2000  # distinct calls


@dataclass
class Seen:
    id: str
    calls: int = 0
    total_ns: int = 0
    reported: int = 0  # calls in the last update
    timed: bool = False


_seen: dict[tuple[CodeType, int, str], Seen] = {}
_digests: dict[str, str] = {}


def record(
    kind: str,
    callee: str,
    function: Callable[..., Any] | None = None,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    detail: dict[str, Any] | None = None,
    frame: FrameType | None = None,
    only: str | None = None,
    elapsed_ns: int | None = None,
    values: dict[str, Any] | None = None,
) -> Seen | None:
    """Note a call made from user code.

    `function`: the callee, for the names of positional arguments (self left out). `values`: what the callee
    settled on, when its own arguments are not at hand. A call that a library makes on the user's behalf is
    recorded as not editable with `direct: False`, unless `only` leaves it out: "direct" wants the user's
    frame
    to be the caller, "torch" allows frames of torch in between, "named" wants the call's text to name the
    callee.
    """
    outer = frames.caller(frame if frame is not None else sys._getframe(1))
    user, through_torch = frames.user_behind_torch(outer)
    if user is None or (only == "direct" and user is not outer) or (only == "torch" and not through_torch):
        return None
    code = user.f_code
    key = (code, user.f_lasti, kind)
    seen = _seen.get(key)
    if seen is None:
        if len(_seen) >= _MOST or (only == "named" and _written(user) != callee.rsplit(".", 1)[-1]):
            return None
        seen = _seen[key] = _new(
            kind, callee, function, args, kwargs or {}, dict(detail or {}), user, through_torch, values
        )
    seen.calls += 1
    if elapsed_ns is not None:
        seen.total_ns += elapsed_ns
        seen.timed = True
    return seen


def codes_of(*kinds: str) -> set[CodeType]:
    """Code of the user's that calls of these kinds stood in."""
    return {code for code, _, kind in _seen if kind in kinds}


def record_library(kind: str, callee: str, detail: dict[str, Any]) -> None:
    """Note a call that no user code leads to: where a console script of a package makes it. Not editable."""
    frame = frames.caller(sys._getframe(1))
    while frame is not None and os.path.basename(frame.f_code.co_filename).startswith("<"):
        frame = frame.f_back
    if frame is None:
        return
    path = frames.absolute(frame.f_code.co_filename)
    core.emit(
        "site",
        {
            "id": f"{kind}-library",
            "kind": kind,
            "callee": callee,
            "file": path,
            "file_sha256": digest(path),
            "span": None,
            "line": frame.f_lineno,
            "function": frame.f_code.co_name,
            "calls": 1,
            "editable": False,
            "detail": {
                **{k: v for k, v in detail.items() if isinstance(v, (str, int, float, bool))},
                "direct": False,
            },
        },
    )


def _written(user: FrameType) -> str | None:
    """Name of what the user's frame calls, as its text has it."""
    span = frames.span_of(user.f_code, user.f_lasti)
    return origins.called_name(origins.call_node(user.f_code.co_filename, span))


def _new(
    kind: str,
    callee: str,
    function: Callable[..., Any] | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    detail: dict[str, Any],
    user: FrameType,
    immediate: bool,
    values: dict[str, Any] | None,
) -> Seen:
    code = user.f_code
    path = frames.absolute(code.co_filename)
    span = frames.span_of(code, user.f_lasti)
    node = origins.call_node(code.co_filename, span)
    written = origins.called_name(node)
    # a wrapper of the same name (accelerator.backward, a prepared optimizer's step) still is the user's call
    direct = immediate or (written is not None and written == callee.rsplit(".", 1)[-1])
    arguments: dict[str, Any] = {}
    if direct and function is not None:
        names = _names(function)
        if values is None:
            arguments, flags = origins.arguments(node, user, names, args, kwargs)
        else:
            arguments, flags = origins.arguments_from_source(node, user, names, values)
        detail.update({f"flag.{name}": flag for name, flag in flags.items()})
    if not direct:
        detail["direct"] = False
    if kind == "checkpoint_enable" and (flag := origins.asked_by(user)) is not None:
        detail["asked_by"] = flag
    if written is not None:
        detail.setdefault("written", written)
    place = f"{path}:{span or user.f_lineno}:{kind}"
    seen = Seen(id=f"{kind}-{hashlib.sha1(place.encode()).hexdigest()[:10]}")
    core.emit(
        "site",
        {
            "id": seen.id,
            "kind": kind,
            "callee": callee,
            "file": path,
            "file_sha256": digest(path),
            "span": None
            if span is None
            else {
                "line": span[0],
                "byte_column": span[1],
                "end_line": span[2],
                "end_byte_column": span[3],
            },
            "line": user.f_lineno,
            "function": code.co_name,
            "arguments": arguments,
            "stack": frames.stack(user),
            "calls": 1,
            "editable": direct and _in_roots(path),
            "detail": {
                k: v for k, v in detail.items() if isinstance(v, (str, int, float, bool)) or v is None
            },
        },
    )
    return seen


def _names(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in positional]
    return names[1:] if names and names[0] in ("self", "cls") else names


def digest(path: str) -> str:
    """sha256 of the file, as it is now; empty when it cannot be read."""
    if path not in _digests:
        try:
            with open(path, "rb") as file:
                _digests[path] = hashlib.sha256(file.read()).hexdigest()
        except OSError:
            _digests[path] = ""
    return _digests[path]


def _in_roots(path: str) -> bool:
    roots = core.settings.user_roots
    if not roots:
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        roots = (os.getcwd(), *((os.path.dirname(frames.absolute(script)),) if script else ()))
    return any(path.startswith(os.path.realpath(root).rstrip(os.sep) + os.sep) or
               path.startswith(root.rstrip(os.sep) + os.sep) for root in roots)  # fmt: skip


def report_counts() -> None:
    """Send the call counts and times that changed since the last report."""
    for seen in _seen.values():
        if seen.calls == seen.reported:
            continue
        seen.reported = seen.calls
        update: dict[str, Any] = {"id": seen.id, "calls": seen.calls}
        if seen.timed:
            update["total_ms"] = round(seen.total_ns / 1e6, 4)
        core.emit("site_update", update)
