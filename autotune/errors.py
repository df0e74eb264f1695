"""Every fault a user can meet, with its exit code and what to do about it.

One message is one line: what happened, where (`file:line:col` when there is a place), what to do.
The CLI prints it and leaves with `exit_code`; nothing below the CLI prints or exits.
Each fault has a `code`, one of `autotune.error_codes`, where `autotune explain CODE` finds its page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every verb."""

    DONE = 0  # done, or nothing found
    FINDINGS = 1  # findings at or above --fail-on
    BAD_INPUT = 2  # usage, rules, traces, configuration
    JOB_FAILED = 3  # the training job failed or could not start
    NOT_OBSERVED = 4  # the observer never attached, or saw no training step
    SLOWER_OR_BROKEN = 5  # verify: slower, or parity broken
    UNDECIDED = 6  # verify: undecided; optimize: ended before anything was proven
    FILES = 7  # read-only folder, full disk
    BUG = 70  # our own bug; traceback in a file
    INTERRUPTED = 130


@dataclass(frozen=True)
class Place:
    """A place in a file; line and column count from 1, byte offset from 0."""

    path: str
    line: int | None = None
    column: int | None = None
    byte_offset: int | None = None

    def __str__(self) -> str:
        if self.line is not None:
            return f"{self.path}:{self.line}" + (f":{self.column}" if self.column is not None else "")
        if self.byte_offset is not None:
            return f"{self.path} (byte {self.byte_offset})"
        return self.path


class AutotuneError(Exception):
    """Base of all user-facing faults."""

    exit_code: Exit = Exit.BAD_INPUT
    code: str = "bad-input"

    def __init__(
        self,
        what: str,
        *,
        where: Place | str | None = None,
        hint: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(what)
        if code is not None:
            self.code = code
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where is not None else self.what
        return f"{head}; {self.hint}" if self.hint else head


class InputError(AutotuneError):
    """Bad usage, broken YAML, truncated or foreign trace, unknown rule or run."""


class SeveralFaults(InputError):
    """Everything that is wrong with one file; with one fault it reads as that fault."""

    def __init__(self, faults: Sequence[InputError], what: str) -> None:
        first = faults[0]
        self.problems = [f"{fault} [{fault.code}]" for fault in faults] if len(faults) > 1 else []
        if self.problems:
            super().__init__(f"{len(faults)} {what}", code=first.code)
        else:
            super().__init__(first.what, where=first.where, hint=first.hint, code=first.code)


class JobFailedError(AutotuneError):
    """The training job crashed, or its command could not start."""

    exit_code = Exit.JOB_FAILED
    code = "job-failed"


class NotObservedError(AutotuneError):
    """The observer never attached, or no training step was seen."""

    exit_code = Exit.NOT_OBSERVED
    code = "not-observed"


class FilesError(AutotuneError):
    """A folder is read-only, a disk is full, a file vanished."""

    exit_code = Exit.FILES
    code = "files"


class InterruptedRunError(AutotuneError):
    """The user pressed Ctrl-C."""

    exit_code = Exit.INTERRUPTED
    code = "interrupted"
