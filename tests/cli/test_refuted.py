"""A patch that verify has refuted is not put beside the original, unless the user insists."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.apply.plan import Choice
from autotune.cli.apply import _refuse_refuted
from autotune.errors import AutotuneError
from autotune.records.plan import PatchedJob
from autotune.records.verdict import ArmRecord, ParityResult, Settings, Verdict
from autotune.store import write_record


def _run(tmp_path: Path, outcome: str) -> Path:
    arms = [
        ArmRecord(name="original", command=["python", "x.py"], cwd="/x"),
        ArmRecord(name="patched", command=["python", "x.py"], cwd="/x", fingerprint="abc"),
    ]
    parity = ParityResult(tier="numeric", used="numeric", outcome="broken", sentence="training changed")
    settings = Settings(
        tier="numeric", min_pairs=3, max_pairs=8, steps=12, warmup_steps=3, parity_steps=20, seed=0
    )
    verdict = Verdict(
        outcome=outcome,  # type: ignore[arg-type]
        sentence="training changed: planted",
        parity=parity,
        arms=arms,
        trials=[],
        settings=settings,
    )
    (tmp_path / "trials" / "verify").mkdir(parents=True)
    write_record(tmp_path / "trials" / "verify" / "verdict.json", verdict)
    return tmp_path


def _job(fingerprint: str) -> PatchedJob:
    return PatchedJob(
        label="apply", groups=[], rules=[], command=["python"], cwd="/x", original_command=["python"],
        original_cwd="/x", tree="/x", fingerprint=fingerprint,
    )  # fmt: skip


def test_exactly_the_refuted_patch_is_refused(tmp_path: Path) -> None:
    run = _run(tmp_path, "parity-broken")
    with pytest.raises(AutotuneError, match="refuted exactly this patch"):
        _refuse_refuted(run, _job("abc"), Choice())
    _refuse_refuted(run, _job("another"), Choice())
    _refuse_refuted(run, _job("abc"), Choice(unsafe=True))


def test_a_proven_patch_passes(tmp_path: Path) -> None:
    _refuse_refuted(_run(tmp_path, "faster"), _job("abc"), Choice())
