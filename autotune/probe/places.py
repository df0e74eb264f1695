"""A line of the user's that takes time, told as a site without a call's span: it is shown, never edited."""

from __future__ import annotations

from types import CodeType, FrameType

from . import frames, sites
from .core import core

Place = tuple[CodeType, int]


def of(frame: FrameType | None) -> Place | None:
    """Code and line of the nearest user frame; holds no frame and so none of its tensors."""
    user = frames.nearest_user(frames.caller(frame)) if frame is not None else None
    return None if user is None else (user.f_code, user.f_lineno)


def tell(kind: str, place: Place, callee: str, calls: int) -> None:
    code, line = place
    tell_line(kind, frames.absolute(code.co_filename), line, code.co_name, callee, calls)


def tell_line(kind: str, path: str, line: int, function: str, callee: str, calls: int) -> None:
    """The same of a line whose code is known by name only."""
    core.emit(
        "site",
        {
            "id": f"{kind}-{line}",
            "kind": kind,
            "callee": callee,
            "file": path,
            "file_sha256": sites.digest(path),
            "span": None,
            "line": line,
            "function": function,
            "calls": calls,
            "editable": False,
        },
    )
