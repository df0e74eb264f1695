"""A run handed on: whole, or without paths and arguments."""

from __future__ import annotations

import json
import sys
import tarfile
import textwrap
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.report.archive import redacted

JOB = """
    import argparse, torch
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int)
    parser.add_argument("--project-folder")
    args = parser.parse_args()
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.ones(200, 4), batch_size=args.rows)
    for batch in loader:
        model(batch).sum().backward(); optimizer.step(); optimizer.zero_grad()
"""


@pytest.mark.job
def test_a_redacted_archive_has_no_path_and_no_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    private = tmp_path / "private-place"
    private.mkdir()
    monkeypatch.chdir(private)
    Path("job.py").write_text(textwrap.dedent(JOB))
    words = [sys.executable, "job.py", "--rows", "2", "--project-folder=hush-hush"]
    assert run(["analyze", "-q", "--runs-dir", "out", "--", *words]) == 0
    assert run(["export", "--runs-dir", "out", "--redact", "--out", "a.tgz"]) == 0
    with tarfile.open("a.tgz") as archive:
        texts = {m.name.partition("/")[2]: archive.extractfile(m).read().decode() for m in archive}  # type: ignore[union-attr]
    assert {"run.json", "facts.json", "diagnosis.json", "launches/observe/observation.json"} <= set(texts)
    everything = "\n".join(texts.values())
    for secret in ("private-place", "hush-hush", str(tmp_path), sys.prefix, str(Path(sys.executable).parent)):
        at = everything.find(secret)
        assert at < 0, everything[max(0, at - 300) : at + 100]
    record = json.loads(texts["run.json"])
    assert record["command"][1:] == ["job.py", "--rows", "<argument>", "--project-folder=<argument>"]
    observation = json.loads(texts["launches/observe/observation.json"])
    loader = next(site for site in observation["sites"] if site["kind"] == "loader")
    assert loader["file"] == "<path>/job.py" and loader["line"] > 5
    assert {argument["text"] for argument in loader["arguments"].values()} == {"<argument>"}
    assert run(["export", "--runs-dir", "out", "--out", "b.tgz"]) == 0
    with tarfile.open("b.tgz") as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert "launches/observe/train.log" in names and not [name for name in names if "/inject/" in name]


def test_what_is_cut_from_strings() -> None:
    value = {
        "text": "edit /home/ann/x/train.py:12 and ~/data/a.bin, see ../lib/util.py; 3/4 of it; read/write",
        "error": "ValueError: ann said no",
        "stop_reason": "nothing happened for 3 s",
        "detail": {"field.run_name": "mine", "field.lr": 0.1},
        "log_tail": ["x"],
    }
    assert redacted(value) == {
        "text": "edit <path>/train.py:12 and <path>, see <path>/util.py; 3/4 of it; read/write",
        "error": "ValueError: <text>",
        "stop_reason": "<text>",
        "detail": {"field.run_name": "<argument>", "field.lr": 0.1},
        "log_tail": [],
    }
