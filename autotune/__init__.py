"""autotune: say why a training job is slow, patch a copy of it, and prove the speed-up.

`from autotune import Run` reads a recorded run in Python or a notebook; it is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.version import __version__

if TYPE_CHECKING:
    from autotune.notebook.run import Run as Run

__all__ = ["Run", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Run":
        from autotune.notebook.run import Run

        return Run
    raise AttributeError(f"module 'autotune' has no attribute '{name}'")
