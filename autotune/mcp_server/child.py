"""One verb of autotune in a process of its own: argument list in, its JSON answer out, progress meanwhile.

A process keeps the protocol's streams clean, lets a call be cancelled as with Ctrl-C, and keeps a fault of
one call from ending the server. Nothing passes through a shell.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process

Say = Callable[[float, str], Awaitable[None]]  # seconds since the start, a line
_EVERY_S = 2.0
_GRACE_S = 40.0  # the verb stops the job, which may take its own grace period
_LONGEST_LINE = 200


@dataclass(frozen=True)
class Said:
    """What a verb answered."""

    exit_code: int
    answer: dict[str, Any] | None  # the JSON document; None when there was none
    fault: str  # the one line of a fault; empty when all went well


async def run_verb(arguments: Sequence[str], folder: Path, say: Say) -> Said:
    """Run `autotune ARGUMENTS...` in `folder`. Cancelling this stops the verb and the job it started."""
    process = await anyio.open_process(
        [sys.executable, "-m", "autotune", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    lines = _Lines()
    try:
        async with anyio.create_task_group() as telling:
            telling.start_soon(_tell, lines, say)
            async with anyio.create_task_group() as reading:
                reading.start_soon(lines.collect, process.stderr)
                text = b"".join([chunk async for chunk in process.stdout])
            code = await process.wait()
            telling.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process)
    return Said(code, _document(text), lines.fault)


class _Lines:
    """The newest line of stderr, and the line of a fault."""

    def __init__(self) -> None:
        self.newest = "starting"
        self.fault = ""

    async def collect(self, stream: ByteReceiveStream) -> None:
        rest = b""
        async for chunk in stream:
            *whole, rest = (rest + chunk).split(b"\n")
            rest = rest[: 64 * _LONGEST_LINE]  # the job may print without line ends
            for raw in whole:
                self._take(raw.decode("utf-8", "replace"))
        self._take(rest.decode("utf-8", "replace"))

    def _take(self, line: str) -> None:
        text = "".join(c if c.isprintable() else " " for c in line).strip()
        if text.startswith("autotune: "):
            self.fault = text.removeprefix("autotune: ")
        elif text:
            self.newest = text[:_LONGEST_LINE]


async def _tell(lines: _Lines, say: Say) -> None:
    """The newest line every few seconds, also when it is the old one: clients see that the call lives."""
    began = time.monotonic()
    while True:
        await say(time.monotonic() - began, lines.newest)
        await anyio.sleep(_EVERY_S)


async def _stop(process: Process) -> None:
    """As Ctrl-C would, then for good; nothing when it has ended."""
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
        with anyio.move_on_after(_GRACE_S):
            await process.wait()
        if process.returncode is None:
            process.kill()
    await process.aclose()


def _document(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
