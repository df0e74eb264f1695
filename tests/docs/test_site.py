"""The documentation site builds without a warning and asks no other host for anything."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from pages import ROOT


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    built = list((tmp_path / "site").rglob("*.html"))
    assert len(built) > 20
    for page in built:
        loaded = re.findall(
            r"<(?:script|img|iframe|link)[^>]+(?:src|href)=\"(https?:[^\"]+)\"", page.read_text()
        )
        assert [url for url in loaded if "canonical" not in url] == [], page.name
