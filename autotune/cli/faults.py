"""From an exception to one line on stderr, an exit code and, with --json, one document on stdout."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches

import click

from autotune.cli.groups import UnknownCommandError
from autotune.errors import AutotuneError, Exit


@dataclass(frozen=True)
class Told:
    """A fault as it is told to a person and to a program."""

    code: str
    what: str
    exit_code: Exit
    where: str | None = None
    todo: str | None = None
    problems: list[str] = field(default_factory=list)
    line: str = ""  # replaces the line made of where, what and todo
    details: list[str] = field(default_factory=list)  # lines that stand before it: problems with their source

    def text(self) -> str:
        """One line: foreign text in a message (an exception's, a file name) may hold line breaks."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        told = self.line or (f"{head}; {self.todo}" if self.todo else head)
        last = f"autotune: {' '.join(_printable(told).split())} [{self.code}]"
        return "\n".join([*(_printable(line) for line in self.details), last])


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def told(fault: BaseException) -> Told:
    """What is to be said about any exception a verb can leave with."""
    if isinstance(fault, AutotuneError):
        where = str(fault.where) if fault.where is not None else None
        problems = [str(problem).splitlines()[0] for problem in getattr(fault, "problems", [])]
        details = [line for problem in getattr(fault, "problems", []) for line in str(problem).splitlines()]
        return Told(fault.code, fault.what, fault.exit_code, where, fault.hint, problems, details=details)
    if isinstance(fault, click.UsageError):
        todo = f"{fault.ctx.command_path} --help" if fault.ctx else "autotune --help"
        what = _unknown_option(fault) or fault.format_message().rstrip(".")
        line = f"{what} ({todo})" if fault.ctx else what
        return Told(_usage_code(fault), what, Exit.BAD_INPUT, todo=todo, line=line)
    if isinstance(fault, click.ClickException):
        return Told("bad-input", fault.format_message(), Exit.BAD_INPUT)
    if isinstance(fault, click.Abort | KeyboardInterrupt):
        return Told("interrupted", "interrupted", Exit.INTERRUPTED, todo="what was recorded is kept")
    if isinstance(fault, OSError) and _working_folder_is_gone():
        return Told(
            "files", "the working folder does not exist any more", Exit.FILES, todo="cd into one that does"
        )
    if isinstance(fault, OSError):
        path = os.fsdecode(fault.filename) if isinstance(fault.filename, str | bytes) else None
        todo = "check the folder's rights and free space"
        return Told("files", fault.strerror or str(fault), Exit.FILES, where=path, todo=todo)
    last, kept = _keep_traceback()
    what, todo = f"a bug of ours: {last}", _bug_todo(kept)
    return Told("bug", what, Exit.BUG, where=kept, todo=todo, line=f"{what}; {todo}")


def _unknown_option(fault: click.UsageError) -> str:
    """An option that does not exist, with the nearest one; empty for other faults."""
    if not isinstance(fault, click.NoSuchOption):
        return ""
    near = get_close_matches(fault.option_name, fault.possibilities or (), n=1)
    return f"there is no option '{fault.option_name}'" + (f"; did you mean '{near[0]}'?" if near else "")


def _working_folder_is_gone() -> bool:
    try:
        os.getcwd()
    except OSError:
        return True
    return False


def tell(fault: Told, *, as_json: bool) -> int:
    """Say it; `as_json` also answers with a document. Returns the exit code."""
    with suppress(OSError):
        print(fault.text(), file=sys.stderr, flush=True)
    if as_json:
        from autotune.records.fault import Fault, FaultReport

        report = Fault(
            code=fault.code,
            what=_encodable(fault.what),
            where=_encodable(fault.where) if fault.where is not None else None,
            todo=_encodable(fault.todo) if fault.todo is not None else None,
            exit_code=int(fault.exit_code),
            problems=[_encodable(problem) for problem in fault.problems],
        )
        with suppress(OSError):  # the fault may be that stdout cannot be written to
            print(FaultReport(error=report).model_dump_json(indent=1), flush=True)
    return int(fault.exit_code)


def _encodable(text: str) -> str:
    """Bytes of a file name that are no text cannot stand in JSON."""
    return text.encode("utf-8", "replace").decode("utf-8")


def asks_for_json(arguments: Sequence[str]) -> bool:
    """`--json` stands among autotune's own words; those after -- belong to the training command."""
    own = list(arguments)
    return "--json" in (own[: own.index("--")] if "--" in own else own)


def _usage_code(fault: click.UsageError) -> str:
    if isinstance(fault, UnknownCommandError):
        return "command-unknown"
    if isinstance(fault, click.NoSuchOption):
        return "option-unknown"
    if isinstance(fault, click.MissingParameter):
        return "argument-missing"
    return "value-refused" if isinstance(fault, click.BadParameter) else "usage"


def _keep_traceback() -> tuple[str, str | None]:
    """The last line of the exception being handled, and the file that holds the whole."""
    text = traceback.format_exc()
    last = text.strip().splitlines()[-1]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="autotune-bug-", suffix=".txt", delete=False, encoding="utf-8"
        ) as out:
            out.write(text)
    except OSError:
        return last, None
    return last, out.name


def _bug_todo(kept: str | None) -> str:
    if kept is None:
        return "please report it (the traceback could not be saved)"
    return f"the traceback is in {kept}, please report it"


def silence_stdout() -> None:
    """The reader of our answer is gone: what Python still wants to flush goes nowhere."""
    with suppress(OSError, ValueError):  # a stream that is no file has nothing to silence
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def last_words(exit_code: int) -> int:
    """Flush the answer while a fault of that can still be told. Returns the exit code."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    except OSError as fault:
        silence_stdout()
        if exit_code == Exit.DONE:
            reason = fault.strerror or str(fault)
            return tell(Told("files", f"the answer cannot be written: {reason}", Exit.FILES), as_json=False)
    return exit_code
