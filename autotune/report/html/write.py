"""From a run folder to a file."""

from __future__ import annotations

from pathlib import Path

from autotune.report.html.gather import Other


def write_html(run: Path, target: Path, *, named: str = "", against: Other | None = None) -> int:
    """Write the page of a run and return its size in bytes. Raises InputError without plotly or a diagnosis,
    FilesError when the file cannot be written."""
    from autotune.report.html.compose import compose
    from autotune.report.html.figures.draw import require_plotly
    from autotune.report.html.gather import gather
    from autotune.report.html.page import render
    from autotune.store import write_text

    require_plotly()
    text = render(compose(gather(run, named=named, against=against)))
    write_text(target, text)
    return len(text.encode("utf-8"))
