"""What scandir gives for a folder that lies partly in the sandbox."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from typing import Any

from .guard_paths import Overlay, real


class Entry:
    """A directory entry of a merged folder."""

    __slots__ = ("_place", "name", "path")

    def __init__(self, place: str, name: Any, path: Any) -> None:
        self._place, self.name, self.path = place, name, path

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def _mode(self, follow: bool) -> int:
        try:
            return (real.stat if follow else real.lstat)(self._place).st_mode
        except FileNotFoundError:
            return 0

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._mode(follow_symlinks) & 0o170000 == 0o040000

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._mode(follow_symlinks) & 0o170000 == 0o100000

    def is_symlink(self) -> bool:
        return self._mode(False) & 0o170000 == 0o120000

    def is_junction(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return (real.stat if follow_symlinks else real.lstat)(self._place)

    def inode(self) -> int:
        return real.lstat(self._place).st_ino


class Scan:
    """The iterator scandir returns for a merged folder."""

    def __init__(self, overlay: Overlay, where: str, given: Any, names: list[str]) -> None:
        self._entries = self._make(overlay, where, given, names)

    @staticmethod
    def _make(overlay: Overlay, where: str, given: Any, names: list[str]) -> Iterator[Entry]:
        base = os.fspath(given)
        for name in names:
            shown: Any = os.fsencode(name) if isinstance(base, bytes) else name
            place = overlay.view(posixpath.join(where, name))
            yield Entry(place, shown, os.path.join(base, shown))

    def __iter__(self) -> Iterator[Entry]:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> Scan:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())
