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


class Clash(Exception):
    """One package has a file where another has a folder."""


def take_in(part: Path, folder: Path) -> None:
    """Move what `part` holds into `folder`, an older version of a distribution out of it.

    Raises OSError, Clash.
    """
    for info in part.glob("*.dist-info"):
        for old in folder.glob("*.dist-info"):
            if _distribution(old) == _distribution(info):
                _remove(old, folder)
    for root, folders, files in os.walk(part):
        inside = folder / Path(root).relative_to(part)
        if os.path.lexists(inside) and not inside.is_dir():
            raise Clash(f"{inside.relative_to(folder)} is a file of another package, and a folder here")
        inside.mkdir(parents=True, exist_ok=True)
        for name in [*files, *(name for name in folders if (Path(root) / name).is_symlink())]:
            if (inside / name).is_dir():
                place = (inside / name).relative_to(folder)
                raise Clash(f"{place} is a folder of another package, and a file here")
            os.replace(Path(root) / name, inside / name)
    shutil.rmtree(part)


def _remove(info: Path, folder: Path) -> None:
    """Take a distribution away, but nothing that another one has too."""
    others = {name for other in folder.glob("*.dist-info") if other != info for name in _recorded(other)}
    for name in _recorded(info) - others:
        path = Path(os.path.normpath(folder / name))
        if not path.is_relative_to(folder) or path.is_dir():
            continue
        path.unlink(missing_ok=True)
        for above in path.parents:
            if above == folder or not above.is_dir() or any(above.iterdir()):
                break
            above.rmdir()
    shutil.rmtree(info, ignore_errors=True)


def _recorded(info: Path) -> set[str]:
    """Files of a distribution, as its RECORD names them."""
    record = info / "RECORD"
    if not record.is_file():
        return set()
    with open(record, encoding="utf-8", errors="surrogateescape", newline="") as lines:
        return {row[0] for row in csv.reader(lines) if row and row[0]}


def _distribution(info: Path) -> str:
    name, _, _ = info.name.removesuffix(".dist-info").rpartition("-")
    return re.sub(r"[-_.]+", "-", name).lower()
