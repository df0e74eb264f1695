"""Step times by the device's own clock: an event at every step end, read once it has passed, never waited
for..
"""

from __future__ import annotations

from collections import deque
from typing import Any

from .core import core

_WATCHED = 500  # steps of a watched run: it is read in stretches, and its file must not grow
_events: deque[tuple[int, Any]] = deque(maxlen=512)


def mark(torch: Any, index: int) -> None:
    """Step `index` ended on the host; its end on the device is where the current stream stands now."""
    if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        return
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    _events.append((index, event))
    collect()


def collect() -> None:
    while len(_events) >= 2 and _events[1][1].query():
        _, before = _events.popleft()
        index, after = _events[0]
        if core.settings.mode != "watch" or index <= _WATCHED:
            core.emit("device_step", {"index": index, "device_ms": round(before.elapsed_time(after), 4)})
