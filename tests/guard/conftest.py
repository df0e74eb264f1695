"""A small project of the user's, and a launch folder beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from guarded import Guarded


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    """A project with a few files of the user's."""
    project = tmp_path / "project"
    (project / "out" / "checkpoint-5").mkdir(parents=True)
    (project / "out" / "checkpoint-5" / "model.bin").write_bytes(b"five")
    (project / "out" / "log.txt").write_text("old line\n")
    (project / "data.txt").write_text("data\n")
    (project / "helper.py").write_text("VALUE = 3\n")
    return Guarded(project, tmp_path / "launch")
