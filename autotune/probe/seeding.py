"""Random numbers start alike in every launch of a comparison, so that all arms meet the same batches.

A job that sets its own seed does so later and wins.
"""

from __future__ import annotations

import random
from typing import Any

from . import finder


def seed_all(seed: int, torch: Any) -> None:
    """Seed Python, torch (all devices), and numpy when it is imported."""
    random.seed(seed)
    torch.manual_seed(seed)
    finder.when_imported("numpy", lambda numpy: numpy.random.seed(seed % 2**32))
