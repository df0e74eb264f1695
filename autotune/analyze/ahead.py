"""What a diagnosis needs, read while the job is still loading its own libraries.

That takes most of a second, and would else be waited for: the rules before the job starts, the trace reader
when it is over.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from autotune.analyze.diagnose import RuleSources
    from autotune.observe.progress import Progress


def reading_ahead(
    rules: RuleSources, progress: Callable[[Progress], None] | None = None
) -> Callable[[Progress], None]:
    """A progress callback that starts to read at the job's first sign, so when its process is there.

    No process is started while the other thread reads.
    """
    begun = False

    def show(state: Progress) -> None:
        nonlocal begun
        if not begun:
            begun = True
            threading.Thread(target=_read, args=(rules,), name="autotune-ahead").start()
        if progress is not None:
            progress(state)

    return show


def _read(rules: RuleSources) -> None:
    """What fails here fails again, and is told, where it is used."""
    try:
        import autotune.facts.everything
        import autotune.rules.match
        import autotune.trace.summary  # noqa: F401

        rules.check()
    except Exception:
        return
