"""The `runs/` folder: names, the latest run, atomic writes, reading records back.

A run is a folder `at-<date>-<time>-<name>`: the prefix keeps it apart from TensorBoard's folders.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from autotune.errors import FilesError, InputError

if TYPE_CHECKING:
    from autotune.records.base import Document

    D = TypeVar("D", bound=Document)

DEFAULT_RUNS_DIR = Path("runs")
_PREFIX = "at-"


def create_run(runs_dir: Path, name: str) -> Path:
    """Make a new run folder and return its absolute path. Raises FilesError."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:40] or "job"
    stamp = time.strftime("%Y%m%d-%H%M%S")
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        for attempt in range(1000):
            suffix = "" if attempt == 0 else f"-{attempt}"
            folder = runs_dir.resolve() / f"{_PREFIX}{stamp}-{slug}{suffix}"
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder
    except OSError as fault:
        raise _files_error(fault, runs_dir, in_runs=True) from fault
    raise FilesError("could not find a free run name", where=str(runs_dir))


def list_runs(runs_dir: Path) -> list[Path]:
    """Run folders, oldest first."""
    if not runs_dir.is_dir():
        return []
    found = [p for p in runs_dir.iterdir() if p.name.startswith(_PREFIX) and p.is_dir()]
    return sorted(found, key=lambda p: p.name)


def find_run(runs_dir: Path, name: str | None) -> Path:
    """The run called `name` (a name, a unique part of it, or a path), or the latest. Raises InputError."""
    if name and os.path.isdir(name):  # Path.is_dir raises for a name that is too long
        return Path(name).resolve()
    runs = list_runs(runs_dir)
    if not runs:
        raise InputError(
            "there is no run yet",
            where=str(runs_dir),
            hint="start with: autotune analyze -- COMMAND",
            code="run-missing",
        )
    if name is None or name == "latest":
        # A run that failed before its diagnosis has nothing to show or apply.
        usable = [run for run in runs if (run / "diagnosis.json").exists()]
        return max(usable or runs, key=lambda p: p.name).resolve()
    hits = [p for p in runs if p.name == name] or [p for p in runs if name in p.name]
    if len(hits) == 1:
        return hits[0].resolve()
    if hits:
        names = ", ".join(p.name for p in hits[-5:])
        raise InputError(
            f"'{name}' fits several runs: {names}", hint="give more of the name", code="run-ambiguous"
        )
    from difflib import get_close_matches

    near = get_close_matches(name, [p.name for p in runs], n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'?" if near else "autotune runs lists them"
    raise InputError(f"there is no run '{name}'", where=str(runs_dir), hint=hint, code="run-unknown")


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing. Raises FilesError."""
    with replacing(path) as scratch, open(scratch, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        if scratch.is_file():
            os.fsync(out.fileno())  # a pipe or device has none


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A scratch file that becomes `path` when the block ends well, and goes when it does not.

    A link stays a link: its target is replaced. A pipe or device (/dev/null) is no file to replace: the
    block gets it as it is. Raises FilesError.
    """
    target = Path(os.path.realpath(path)) if os.path.islink(path) else path
    scratch = target.with_name(f".{target.name[:100]}.{os.getpid()}.tmp")
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            yield target
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        yield scratch
        if target.exists():
            scratch.chmod(target.stat().st_mode & 0o777)
        os.replace(scratch, target)
    except OSError as fault:
        own = fault.filename in (None, str(scratch), str(target))  # else a file that the block has read
        raise _files_error(fault, path if own else Path(os.fsdecode(fault.filename))) from fault
    finally:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)


def write_record(path: Path, record: Document) -> None:
    """Write a record as JSON, atomically. Raises FilesError."""
    write_text(path, record.json_text() + "\n")


def read_record(path: Path, kind: type[D]) -> D:
    """Read a record. Raises InputError when the file is missing, broken or of another version."""
    from pydantic import ValidationError

    try:
        data = read_file(path)
    except FileNotFoundError:
        raise InputError(
            "this run has no such record",
            where=str(path),
            hint="run the step that makes it",
            code="record-missing",
        ) from None
    except OSError as fault:
        raise _files_error(fault, path) from fault
    try:
        record = kind.model_validate_json(data)
    except ValidationError as fault:
        _refuse_version(_version_of(data), path)
        first = fault.errors()[0]
        spot = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"not a {kind.__name__} record: {spot or 'file'}: {first['msg']}",
            where=str(path),
            code="record-broken",
        ) from None
    _refuse_version(record.schema_version, path)
    return record


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises OSError, also for a pipe or device: reading one could take for ever."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "a pipe or device, no file", str(path))
    return path.read_bytes()


def _version_of(data: bytes) -> object:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found.get("schema_version") if isinstance(found, dict) else None


def _refuse_version(version: object, path: Path) -> None:
    """A record of another schema version may mean other things by the same names."""
    from autotune.records.base import SCHEMA_VERSION

    if version is not None and version != SCHEMA_VERSION:
        raise InputError(
            f"the record has schema version {version}; this autotune reads version {SCHEMA_VERSION}",
            where=str(path),
            hint="use the autotune that wrote it, or make the record again",
            code="record-version",
        )


def append_json(path: Path, value: dict[str, object]) -> None:
    """Add one line of JSON and flush it to disk. Raises FilesError."""
    try:
        with open(path, "a", encoding="utf-8") as out:
            out.write(json.dumps(value) + "\n")
            out.flush()
            os.fsync(out.fileno())
    except OSError as fault:
        raise _files_error(fault, path) from fault


def _files_error(fault: OSError, path: Path, *, in_runs: bool = False) -> FilesError:
    in_runs = in_runs or any(part.startswith(_PREFIX) for part in path.parts)
    elsewhere = "choose another folder with --runs-dir" if in_runs else "choose another place"
    hints = {
        errno.EROFS: elsewhere,
        errno.EACCES: elsewhere,
        errno.ENOSPC: f"free some space, or {elsewhere}",
    }
    return FilesError(fault.strerror or str(fault), where=str(path), hint=hints.get(fault.errno or 0))
