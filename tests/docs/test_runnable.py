"""The commands shown in README and guides run, in the order of their page, and print what the page shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT, Block, blocks, pages

MARKED = {page: found for page in pages() if (found := blocks(page))}
QUICK = [page for page, found in MARKED.items() if any(not block.full for block in found)]
LONG = [page for page, found in MARKED.items() if any(block.full for block in found)]


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", QUICK, ids=_name)
def test_quick_commands_run(page: Path, tmp_path: Path) -> None:
    _run([block for block in MARKED[page] if not block.full], tmp_path)


@pytest.mark.full
@pytest.mark.job
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", LONG, ids=_name)
def test_all_commands_run(page: Path, tmp_path: Path) -> None:
    _run(MARKED[page], tmp_path)


def test_readme_and_guides_have_runnable_commands() -> None:
    assert ROOT / "README.md" in QUICK and ROOT / "README.md" in LONG
    assert len(LONG) >= 8


def _run(chosen: list[Block], folder: Path) -> None:
    """In a folder that looks like a checkout, with the interpreter of the tests as `python`."""
    (folder / "tests").symlink_to(ROOT / "tests")
    shutil.copytree(ROOT / "examples", folder / "examples")  # a command may write there
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    environment |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    for block in chosen:
        for command, expected in block.commands:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
            )
            where = f"{_name(block.page)}, block {block.number}: {command}"
            assert done.returncode == 0, f"{where}\n{done.stderr[-2000:]}"
            rest = iter([line.rstrip() for line in done.stdout.splitlines()])
            for line in expected:
                assert line in rest, f"{where}\nnot printed: {line}\n{done.stdout[-3000:]}"
