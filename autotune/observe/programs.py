"""Looking up programs by name, and what their first line says."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

ASSIGNMENT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")


def absolute(text: str, cwd: Path) -> Path:
    return Path(os.path.abspath(cwd / os.path.expanduser(text)))


def which(word: str, cwd: Path, path: str | None) -> str | None:
    if os.sep in word:
        target = cwd / word
        return str(target) if target.is_file() and os.access(target, os.X_OK) else None
    return shutil.which(word, path=path)


def first_line(path: str | None) -> str | None:
    """The `#!` line of a text program."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            head = file.read(512)
    except OSError:
        return None
    return head.split(b"\n", 1)[0].decode("utf-8", "replace") if head.startswith(b"#!") else None
