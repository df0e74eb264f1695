"""A shadow of the user's project in the run folder: links to it, real files only where something is edited.

`<tree>/<absolute path>` mirrors `<absolute path>`. Folders on the way to an edited file or to the working
folder are real, everything beside them is a link, so relative paths (also `..`), `__file__`, imports and data
beside the script work, and nothing is walked: however large the project, only those few folders are listed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from autotune.errors import FilesError

# Bytecode written for an edited file must not land in the user's own cache folder.
_NEVER_LINKED = frozenset({"__pycache__"})
# Folders above the project are mirrored for `..` paths; a very full one is not worth it.
_MOST_ENTRIES_ABOVE = 2000


class Shadow:
    """One shadow tree. Raises FilesError where the run folder cannot be written."""

    def __init__(self, tree: Path, run: Path) -> None:
        self.tree = tree
        self._run = run.resolve()
        self._real: set[Path] = set()

    def path_of(self, original: Path) -> Path:
        """Where `original` (absolute) is mirrored."""
        return self.tree / os.path.normpath(original).lstrip("/")

    def original_of(self, shadow: Path) -> Path | None:
        """The user's path behind a path in this tree; None for a path outside."""
        return original_of(self.tree, shadow)

    def make_real(self, folder: Path) -> None:
        """Mirror `folder` (absolute) as a real folder of links."""
        folder = Path(os.path.normpath(folder))
        for step in [*reversed(folder.parents), folder]:
            if step not in self._real:
                self._mirror(step, whole=step == folder)
                self._real.add(step)

    def write(self, original: Path, content: bytes) -> Path:
        """Put a real file in place of `original`'s link; gives its path in the tree."""
        self.make_real(original.parent)
        target = self.path_of(original)
        try:
            if target.is_symlink() or target.exists():
                target.unlink()
            target.write_bytes(content)
            if original.exists():
                shutil.copymode(original, target)
        except OSError as fault:
            raise FilesError(fault.strerror or str(fault), where=str(target)) from fault
        return target

    def _mirror(self, folder: Path, *, whole: bool) -> None:
        target = self.path_of(folder)
        try:
            if target.is_symlink():
                target.unlink()
            target.mkdir(parents=True, exist_ok=True)
            entries = list(_entries(folder, None if whole else _MOST_ENTRIES_ABOVE))
        except OSError as fault:
            raise FilesError(fault.strerror or str(fault), where=str(target)) from fault
        for name in entries:
            place = target / name
            if name in _NEVER_LINKED or self._is_run(folder / name) or os.path.lexists(place):
                continue
            try:
                place.symlink_to(folder / name)
            except OSError as fault:
                raise FilesError(fault.strerror or str(fault), where=str(place)) from fault

    def _is_run(self, path: Path) -> bool:
        """The run folder and its neighbours are left out: a walk must not find the tree inside itself."""
        runs = self._run.parent
        return path == self._run or path == runs or (path.parent == runs and path.name.startswith("at-"))


def original_of(tree: Path, shadow: Path) -> Path | None:
    """The user's path behind a path in a shadow tree; None for a path outside."""
    try:
        return Path("/") / Path(os.path.normpath(shadow)).relative_to(tree)
    except ValueError:
        return None


def _entries(folder: Path, most: int | None) -> Iterable[str]:
    try:
        with os.scandir(folder) as found:
            names = []
            for entry in found:
                names.append(entry.name)
                if most is not None and len(names) > most:
                    return []
            return names
    except OSError:
        # A folder that cannot be listed can still be passed through.
        return []
