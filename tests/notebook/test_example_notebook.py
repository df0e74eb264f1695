"""The example notebook is executed, holds no machine path, and says the same when it is executed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "notebook" / "read_a_run.ipynb"


def _plain(notebook: Any) -> list[str]:
    """Plain text of every output; frames are compared by their columns only, as libraries draw them anew."""
    texts = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.output_type == "execute_result", output
            text = output.data["text/plain"]
            texts.append(
                text.split("\n")[0].strip() if "\n" in text and "html" in str(output.data.keys()) else text
            )
    return texts


def test_the_notebook_is_executed_and_names_no_machine() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in code)
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert str(Path.home()) not in text and str(ROOT) not in text and "/tmp/" not in text


@pytest.mark.job
def test_the_notebook_says_the_same_again() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    before = _plain(notebook)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    assert _plain(notebook) == before
