"""Where the shipped data lies: `rules/` and `templates/`, in a checkout and in an installed wheel."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import FilesError

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """The folder `name` ("rules" or "templates").

    Raises FilesError when the installation lacks it.
    """
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FilesError(
        f"the installation lacks its folder '{name}'",
        hint="reinstall autotune-training",
        code="installation-incomplete",
    )


def probe_dir() -> Path:
    """The source folder of the probe, which is copied into each run."""
    return _PACKAGE / "probe"
