"""A folder of packages that are installed one after the other, though several may own parts of one module.

pip's --target replaces a top-level folder that is there already: the second of two distributions that share
a module (fla-core and flash-linear-attention share `fla`) would remove what the first brought. Each is
therefore installed into a folder of its own and moved in, file by file.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from pathlib import Path


def take_in(part: Path, folder: Path) -> None:
    """Move what `part` holds into `folder`, an older version of a distribution out of it. Raises OSError."""
    for info in part.glob("*.dist-info"):
        for old in folder.glob("*.dist-info"):
            if _distribution(old) == _distribution(info):
                _remove(old, folder)
    for root, folders, files in os.walk(part):
        inside = folder / Path(root).relative_to(part)
        inside.mkdir(parents=True, exist_ok=True)
        for name in [*files, *(name for name in folders if (Path(root) / name).is_symlink())]:
            os.replace(Path(root) / name, inside / name)
    shutil.rmtree(part)


def _remove(info: Path, folder: Path) -> None:
    record = info / "RECORD"
    if record.is_file():
        with open(record, encoding="utf-8", newline="") as lines:
            recorded = [row[0] for row in csv.reader(lines) if row]
        for name in recorded:
            path = Path(os.path.normpath(folder / name))
            if path.is_relative_to(folder):
                path.unlink(missing_ok=True)
    shutil.rmtree(info, ignore_errors=True)


def _distribution(info: Path) -> str:
    name, _, _ = info.name.removesuffix(".dist-info").rpartition("-")
    return re.sub(r"[-_.]+", "-", name).lower()
