"""Frames of the user's code: whose file is it, and where exactly is the call."""

from __future__ import annotations

import os
import sys
import sysconfig
from itertools import islice
from types import CodeType, FrameType

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STDLIB = tuple(
    {
        os.path.realpath(path) + os.sep
        for key in ("stdlib", "platstdlib")
        if (path := sysconfig.get_paths().get(key))
    }
)
try:
    _START = os.getcwd()
except OSError:  # the folder is gone
    _START = os.sep
_USER, _LIBRARY, _OURS = 1, 0, 2
_known: dict[str, int] = {}

Span = tuple[int, int, int, int]  # line, byte column, end line, end byte column


def absolute(filename: str) -> str:
    """Path of a code object's file, relative ones taken from the folder the process started in."""
    return os.path.normpath(os.path.join(_START, filename))


def is_user(filename: str) -> bool:
    """A real file that is no installed package, no standard library and not this observer."""
    return _owner(filename) == _USER


def is_observer(filename: str) -> bool:
    """One of the observer's own files."""
    return _owner(filename) == _OURS


def _owner(filename: str) -> int:
    known = _known.get(filename)
    if known is None:
        known = _known[filename] = _decide(filename)
    return known


def _decide(filename: str) -> int:
    if filename.startswith("<") or "site-packages" in filename or "dist-packages" in filename:
        return _LIBRARY
    path = absolute(filename)
    if path.startswith(_HERE):
        return _OURS
    real = os.path.realpath(path)
    if real.startswith(_STDLIB) or "site-packages" in real or "dist-packages" in real:
        return _LIBRARY
    # console scripts in the interpreter's own bin folder are generated, not written
    if os.path.dirname(path) == os.path.dirname(os.path.abspath(sys.executable or "python")):
        return _LIBRARY
    return _USER if os.path.isfile(path) else _LIBRARY


def library_path(filename: str) -> str:
    """Path of a package's file below the folder of packages: the environment's own may be called anything."""
    name = filename.replace("\\", "/")
    for folder in ("/site-packages/", "/dist-packages/"):
        _, found, inner = name.rpartition(folder)
        if found:
            return f"/{inner}"
    return name


def nearest_user(frame: FrameType | None) -> FrameType | None:
    """The first user frame from `frame` outwards."""
    while frame is not None and not is_user(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_behind_torch(frame: FrameType | None) -> tuple[FrameType | None, bool]:
    """The first user frame outwards, and whether only torch's own frames lie between."""
    only_torch = True
    while frame is not None:
        name = frame.f_code.co_filename
        owner = _owner(name)
        if owner == _USER:
            return frame, only_torch
        if owner == _LIBRARY and only_torch:
            only_torch = str(frame.f_globals.get("__name__", "")).partition(".")[0] == "torch"
        frame = frame.f_back
    return None, False


def caller(frame: FrameType) -> FrameType | None:
    """The first frame outwards that is not the observer's own."""
    outer: FrameType | None = frame
    while outer is not None and _owner(outer.f_code.co_filename) == _OURS:
        outer = outer.f_back
    return outer


def user_frame() -> tuple[str, int, str] | None:
    """(file, line, function) of the nearest user frame of the running code."""
    frame = nearest_user(sys._getframe(1))
    if frame is None:
        return None
    return absolute(frame.f_code.co_filename), frame.f_lineno, frame.f_code.co_name


def stack(frame: FrameType | None, most: int = 8) -> list[dict[str, object]]:
    """User frames outward from `frame`, itself first."""
    found: list[dict[str, object]] = []
    while frame is not None and len(found) < most:
        code = frame.f_code
        if is_user(code.co_filename):
            found.append(
                {"file": absolute(code.co_filename), "line": frame.f_lineno, "function": code.co_name}
            )
        frame = frame.f_back
    return found


def span_of(code: CodeType, instruction: int) -> Span | None:
    """Span of the expression that the instruction belongs to; None where the interpreter keeps no columns."""
    positions = getattr(code, "co_positions", None)
    if positions is None:
        return None
    place = next(islice(positions(), instruction // 2, None), None)
    if place is None or None in place:
        return None
    line, end_line, column, end_column = place
    return line, column, end_line, end_column
