"""Open a trace file and hand out its decompressed bytes in blocks, whatever its suffix says.

Only the first bytes decide what a file is. Faults carry the offset in the decompressed text, because
that is where a reader of the error will look.
"""

from __future__ import annotations

import stat
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from autotune.errors import FilesError, InputError, Place

BLOCK_BYTES = 1 << 20

_FOREIGN: tuple[tuple[bytes, str, str | None], ...] = (
    (b"PK\x03\x04", "a zip archive", "unpack it and pass the JSON trace inside"),
    (b"\x28\xb5\x2f\xfd", "zstandard data", "decompress it first (zstd -d)"),
    (b"BZh", "bzip2 data", "decompress it first (bunzip2)"),
    (b"\xfd7zXZ", "xz data", "decompress it first (xz -d)"),
    (b"SQLite format 3", "an SQLite database (nsys or rocprof export)", "pass a torch.profiler JSON trace"),
    (b"\xff\xfe", "UTF-16 text", "save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "save it as UTF-8"),
    (b"\x80\x02", "a Python pickle", "pass the JSON that prof.export_chrome_trace() writes"),
    (b"\x7fELF", "an executable", None),
    (b"<", "HTML or XML", "pass the JSON that prof.export_chrome_trace() writes"),
)


def is_gzip(path: Path) -> bool:
    """Whether the content starts like gzip."""
    with _open_raw(path) as handle:
        return handle.read(2) == b"\x1f\x8b"


def plain_bytes(path: Path) -> int:
    """Size of the decompressed text, 0 when unknown; for gzip what its last four bytes say (mod 4 GiB)."""
    try:
        size = path.stat().st_size
        if not is_gzip(path):
            return size
        with path.open("rb") as handle:
            handle.seek(max(size - 4, 0))
            return max(int.from_bytes(handle.read(4), "little"), size)
    except OSError:
        return 0


def _open_raw(path: Path) -> IO[bytes]:
    try:
        if path.is_dir():
            raise InputError(
                "a folder, not a trace file",
                where=str(path),
                hint="name the files in it",
                code="trace-missing",
            )
        if not stat.S_ISREG(path.stat().st_mode):  # it is read more than once, and a pipe may never speak
            raise InputError(
                "not a regular file (a pipe or a device)",
                where=str(path),
                hint="save the trace to a file first",
                code="trace-missing",
            )
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        raise InputError("no such file", where=str(path), code="trace-missing") from None
    except PermissionError:
        raise FilesError("cannot be read (permission denied)", where=str(path)) from None
    except OSError as fault:
        raise FilesError(f"cannot be read ({fault.strerror or fault})", where=str(path)) from None


def _open_gzip(raw: IO[bytes]) -> tuple[Any, tuple[type[BaseException], ...]]:
    """The fastest gzip reader installed, and the exceptions it raises on bad data."""
    faults: tuple[type[BaseException], ...] = (EOFError, OSError, zlib.error)
    try:
        igzip: Any = import_module("isal.igzip")
        return igzip.IGzipFile(fileobj=raw, mode="rb"), (*faults, import_module("isal.isal_zlib").IsalError)
    except ImportError:
        pass
    try:
        gzip_ng: Any = import_module("zlib_ng.gzip_ng")
        return gzip_ng.GzipNGFile(fileobj=raw, mode="rb"), (*faults, import_module("zlib_ng.zlib_ng").error)
    except ImportError:
        import gzip

        return gzip.GzipFile(fileobj=raw, mode="rb"), faults


def blocks(path: Path, size: int) -> Iterator[bytes]:
    """Decompressed blocks of at most `size` bytes; the last one may be short.

    Raises InputError when the file is empty, is known not to be JSON, or its gzip data ends early.
    """
    compressed = is_gzip(path)
    raw: Any = _open_raw(path)
    faults: tuple[type[BaseException], ...] = (OSError,)
    stream: Any = raw
    if compressed:
        stream, faults = _open_gzip(raw)
    offset = 0
    try:
        while True:
            try:
                block = _read_full(stream, size)
            except EOFError:
                raise InputError(
                    "truncated: the gzip data ends early",
                    where=Place(str(path), byte_offset=offset),
                    hint="copy the file again, or record the trace again",
                    code="trace-truncated",
                ) from None
            except faults as fault:
                raise InputError(
                    f"damaged gzip data ({fault})" if compressed else f"cannot be read ({fault})",
                    where=Place(str(path), byte_offset=offset),
                    hint="copy the file again, or record the trace again",
                    code="trace-truncated",
                ) from None
            if not block:
                break
            if offset == 0:
                _refuse_foreign(path, block)
            offset += len(block)
            yield block
    finally:
        stream.close()
        raw.close()
    if offset == 0:
        raise InputError("the file is empty", where=Place(str(path), byte_offset=0), code="trace-empty")


def _read_full(stream: Any, size: int) -> bytes:
    """`size` bytes, fewer only at the end: gzip readers return short reads at member ends."""
    first: bytes = stream.read(size)
    if not first or len(first) == size:
        return first
    parts = [first]
    missing = size - len(first)
    while missing:
        part = stream.read(missing)
        if not part:
            break
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _refuse_foreign(path: Path, block: bytes) -> None:
    head = block.lstrip(b"\xef\xbb\xbf \t\r\n")
    if head[:1] in (b"{", b"["):
        return
    for magic, what, hint in _FOREIGN:
        if block.startswith(magic) or head.startswith(magic):
            raise InputError(
                f"not a trace: it looks like {what}",
                where=Place(str(path), byte_offset=0),
                hint=hint,
                code="trace-foreign",
            )
    if not head:
        return  # only white space so far
    at = len(block) - len(head)
    raise InputError(
        f"not a trace: JSON was expected, found {head[:12]!r}",
        where=Place(str(path), byte_offset=at),
        hint="pass the JSON (or .json.gz) that prof.export_chrome_trace() writes",
        code="trace-foreign",
    )
