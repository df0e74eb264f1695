"""A run as one archive to hand on, whole or without paths and arguments."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from autotune.errors import InputError
from autotune.store import read_file, replacing

# A redacted archive holds records only: of these every string can be gone through.
_RECORDS = (
    "run.json", "facts.json", "diagnosis.json", "watch.json", "ladder.json", "trace_summary.json",
    "launches/*/observation.json", "trials/*/verdict.json",
)  # fmt: skip
_LEFT_OUT = {"overlay", "inject", "sandbox", "__pycache__"}  # large, or not the run's own
_PATH = re.compile(r"(?<![\w.<>])(?:~|file://)?/(?:[^\s/:;,'\"()\[\]{}|<>*?]+/)*[^\s/:;,'\"()\[\]{}|<>*?]*")
_RELATIVE = re.compile(r"(?<![\w/.<>])(?:\.{1,2}/)?(?:[\w.@+-]+/)+[\w.@+-]*\.\w+")
_COMMANDS = {"command", "argv", "original_command", "script_args"}
_DROPPED = {"log_tail", "guards", "recipe", "allow_write", "traces"}
_ERRORS = {"error", "reason", "stop_reason"}
_GONE, _ARGUMENT = "<path>", "<argument>"


def pack(run: Path, target: Path, *, redact: bool) -> int:
    """Write `target` (.tar.gz) and return how many files it holds. Raises FilesError."""
    count = 0
    paths = [] if redact else sorted(run.rglob("*"))  # listed before the archive, which may lie in the run
    with replacing(target) as scratch, tarfile.open(scratch, "w:gz") as archive:
        for name, data in _redacted(run) if redact else _whole(run, paths):
            entry = tarfile.TarInfo(f"{run.name}/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
            count += 1
    return count


def _whole(run: Path, paths: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        name = path.relative_to(run)
        if path.is_file() and not path.is_symlink() and not _LEFT_OUT & set(name.parts):
            yield name.as_posix(), path.read_bytes()


def _redacted(run: Path) -> Iterator[tuple[str, bytes]]:
    for pattern in _RECORDS:
        for path in sorted(run.glob(pattern)):
            try:
                value = json.loads(read_file(path))
            except (ValueError, RecursionError):
                raise InputError(
                    "this record is damaged, so what it holds cannot be gone through",
                    where=str(path),
                    hint="move it away, or export without --redact",
                    code="record-broken",
                ) from None
            text = json.dumps(redacted(value), indent=1)
            yield path.relative_to(run).as_posix(), text.encode()


def redacted(value: Any, key: str = "") -> Any:
    """A JSON value without paths (names of Python files stay) and without arguments."""
    if key in _DROPPED:
        return type(value)() if isinstance(value, (list, dict, str)) else None
    if key in _COMMANDS and isinstance(value, list):
        return [_word(word, first=n == 0) for n, word in enumerate(value)]
    if isinstance(value, dict):
        if key == "arguments":
            return {name: {**inner, "text": _ARGUMENT} if isinstance(inner, dict) else _ARGUMENT
                    for name, inner in value.items()}  # fmt: skip
        if key == "detail":
            return {n: _ARGUMENT if isinstance(v, str) and n.startswith("field.") else redacted(v, n)
                    for n, v in value.items()}  # fmt: skip
        return {_text(name): redacted(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [redacted(inner) for inner in value]
    if isinstance(value, str):
        return _fault(value) if key in _ERRORS else _text(value)
    return value


def _text(text: str) -> str:
    return _RELATIVE.sub(_name, _PATH.sub(_name, text))


def _name(match: re.Match[str]) -> str:
    path = PurePosixPath(match[0])
    return f"{_GONE}/{path.name}" if path.suffix == ".py" else _GONE


def _word(word: str, *, first: bool) -> str:
    """One word of a command: the program, names of options, Python files; no values."""
    if first or word.endswith(".py"):
        return PurePosixPath(word).name
    if word.startswith("-"):
        return word.partition("=")[0] + (f"={_ARGUMENT}" if "=" in word else "")
    return _ARGUMENT


def _fault(text: str) -> str:
    """The kind of an exception; what it says may quote anything."""
    head, colon, _ = text.partition(": ")
    return f"{head}: <text>" if colon and head.isidentifier() else "<text>"
