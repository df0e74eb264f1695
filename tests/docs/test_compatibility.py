"""The table of launchers and training styles is there, whole, and says what the tests start."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def compatibility() -> ModuleType:
    spec = spec_from_file_location("compatibility", ROOT / "bench" / "compatibility.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["compatibility"] = module
    spec.loader.exec_module(module)
    return module


def test_the_table_of_the_page_is_whole(compatibility: ModuleType) -> None:
    assert len(compatibility.named_rows()) > 40
    assert compatibility.stale() == []
    others = {start for start, _ in compatibility.written_rows() if start.startswith("Python ")}
    assert len(others) >= 3, "the interpreters of TEST_PYTHONS are missing"


def test_an_empty_or_old_table_is_told(
    compatibility: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = compatibility.PAGE.read_text(encoding="utf-8")
    copy = tmp_path / "page.md"
    monkeypatch.setattr(compatibility, "PAGE", copy)
    head, tail = page.partition(compatibility.BEGIN)[0], page.partition(compatibility.END)[2]
    copy.write_text(f"{head}{compatibility.BEGIN}\nNot filled.\n{compatibility.END}{tail}", encoding="utf-8")
    assert len(compatibility.stale()) == len(compatibility.named_rows())
    copy.write_text(page.replace("| python | plain loop |", "| python | plane loop |"), encoding="utf-8")
    faults = compatibility.stale()
    assert any("no row for 'plain loop' started by python" in fault for fault in faults)
    assert any("'plane loop'" in fault and "no test starts" in fault for fault in faults)
