"""Every folder in tests/patches: before.py becomes after.py, or stays as it is with the reason in case.json.

Every edit is applied twice: the second time must change nothing.
Regenerate the expectations with AUTOTUNE_WRITE_PATCHES=1 and read the diff.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from apply_sites import calls_named, site_of

from autotune.apply.edit import Edit, edit_source

CASES = Path(__file__).resolve().parents[1] / "patches"
NAMES = sorted(p.name for p in CASES.iterdir() if (p / "case.json").is_file())


def edits_for(text: str, case: dict[str, Any]) -> list[Edit]:
    made = []
    for n, entry in enumerate(case["edits"]):
        at = entry["at"]
        found = calls_named(text, at.get("written", at["callee"].rsplit(".", 1)[-1]))
        if len(found) <= at.get("nth", 0):
            continue  # the call is gone: nothing to do the second time
        site = site_of(
            text,
            found[at.get("nth", 0)],
            kind=at["kind"],
            callee=at["callee"],
            parameters=tuple(at.get("parameters", ())),
            star=at.get("star"),
            site_id=f"s{n}",
            span=at.get("span", True),
            detail=at.get("detail"),
        )
        made.append(Edit(entry.get("rule", "test/rule"), entry["action"], site, entry["arguments"]))
    return made


@pytest.mark.parametrize("name", NAMES)
def test_patch(name: str) -> None:
    folder = CASES / name
    before = (folder / "before.py").read_bytes().decode("utf-8")
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    result = edit_source(before, edits_for(before, case), case.get("imports", []))
    reasons = [str(r) for r in result.refused]
    after = folder / "after.py"
    if "refused" in case:
        assert [part for part in case["refused"] if not any(part in r for r in reasons)] == [], reasons
        assert len(reasons) == len(case["refused"])
        assert all(r.startswith("train.py:") for r in reasons)
    else:
        assert reasons == []
    if os.environ.get("AUTOTUNE_WRITE_PATCHES") and result.text != before:
        after.write_bytes(result.text.encode("utf-8"))
    if not after.exists():
        assert result.text == before
        return
    assert result.text == after.read_bytes().decode("utf-8")
    assert result.text != before, "an after.py equal to before.py proves nothing"
    again = edit_source(result.text, edits_for(result.text, case), case.get("imports", []))
    assert again.text == result.text


def test_there_are_as_many_cases_that_change_nothing() -> None:
    changing = [n for n in NAMES if (CASES / n / "after.py").exists()]
    assert len(NAMES) - len(changing) >= len(changing)
