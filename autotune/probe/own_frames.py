"""The traceback of a job's error as it would be without the observer: its wrappers are taken out."""

from __future__ import annotations

import functools
import sys
from types import TracebackType
from typing import Any

from . import frames
from .core import core


def install(torch: Any) -> None:
    """Errors of loader workers, which travel as text."""
    wrapper = torch._utils.ExceptionWrapper
    original = wrapper.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            error = sys.exc_info()[1]
            if error is not None:
                without(error, None)
        except Exception:
            core.sink.fault("own_frames.install")
        original(self, *args, **kwargs)

    wrapper.__init__ = __init__


def without(error: BaseException, trace: TracebackType | None) -> TracebackType | None:
    """The traceback to show for `error`; those of the errors it came from are changed in place."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _without(one.__traceback__)
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
    return _without(trace)


def _without(trace: TracebackType | None) -> TracebackType | None:
    kept: list[TracebackType] = []
    at = trace
    while at is not None:
        if not frames.is_observer(at.tb_frame.f_code.co_filename):
            kept.append(at)
        at = at.tb_next
    if not kept:
        return trace
    for one, after in zip(kept, [*kept[1:], None]):  # noqa: B905  (strict= is not in every Python)
        if one.tb_next is not after:
            one.tb_next = after
    return kept[0]
