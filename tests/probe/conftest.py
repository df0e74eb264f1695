"""Jobs that several tests look at: each is started once."""

from __future__ import annotations

import pytest
from jobs import TORCHRUN, Job, run


@pytest.fixture(scope="session")
def two_fsdp2_ranks(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Profiled and stopped."""
    folder = tmp_path_factory.mktemp("fsdp2")
    words = ("--style", "fsdp2", "--steps", "400")
    return run(folder, "distributed_loop.py", *words, prefix=TORCHRUN, mode="profile", steps=6)
