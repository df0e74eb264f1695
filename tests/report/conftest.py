"""One recorded run for all report tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_runs import job_run, trace_run


@pytest.fixture(scope="session")
def from_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trace_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def from_job(from_trace: Path, tmp_path: Path) -> Path:
    return job_run(from_trace, tmp_path / "runs" / "at-20261129-120000-train", tmp_path / "project")
