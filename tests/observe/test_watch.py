"""Whole runs with slow faults planted in them, watched to their end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from autotune.analyze.endurance import watch_report
from autotune.analyze.stretches import find_change, slow_stretches
from autotune.cli.main import run
from autotune.observe.launch import launch
from autotune.observe.spec import LaunchSpec
from autotune.records.observation import Observation
from autotune.records.watch import WatchReport

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def _watch(
    folder: Path, *words: str, start: tuple[str, ...] = (sys.executable,)
) -> tuple[Observation, WatchReport]:
    spec = LaunchSpec(
        command=(*start, str(SCRIPTS / "long_loop.py"), *words),
        cwd=folder,
        folder=folder / "launch",
        mode="watch",
        stop="never",
        echo="none",
        env={"OMP_NUM_THREADS": "1"},
    )
    observation = launch(spec)
    assert observation.exit_code == 0, observation.log_tail
    assert observation.ranks[0].hook_faults == []
    return observation, watch_report(observation)


@pytest.mark.full
@pytest.mark.job
def test_a_loader_that_gets_slower_is_told(tmp_path: Path) -> None:
    observation, report = _watch(tmp_path, "--fault", "drift", "--steps", "2500")
    assert report.steps == 2500 and observation.log_tail == ["end of the job"]
    # other work on this machine may add a jump of its own; the planted 2 ms are there in any case
    (drift,) = [remark for remark in report.remarks if remark.kind in ("drift", "jump")]
    assert "slower" in drift.text and "the wait for the next batch changed by +" in drift.text
    assert drift.figures["loader_wait_ms_change"] > 1.0
    assert drift.change_frac is not None and drift.change_frac > 0.15


@pytest.mark.job
@pytest.mark.full
def test_a_jump_is_dated(tmp_path: Path) -> None:
    _, report = _watch(tmp_path, "--fault", "jump", "--steps", "2500")
    (jump,) = [remark for remark in report.remarks if remark.kind in ("drift", "jump")]
    assert jump.kind == "jump" and jump.first_step is not None and 1200 < jump.first_step < 1800


@pytest.mark.job
@pytest.mark.full
def test_pauses_and_a_leak(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    _, report = _watch(tmp_path / "a", "--fault", "pauses", "--steps", "2100")
    pauses = {pause.kind: pause for pause in report.pauses}
    assert pauses["checkpoint"].recorded == 5 and pauses["gc"].total_ms > 5
    assert "memory-growth" not in {remark.kind for remark in report.remarks}
    (tmp_path / "b").mkdir()
    _, report = _watch(tmp_path / "b", "--fault", "leak", "--steps", "2500")
    (growth,) = [remark for remark in report.remarks if remark.kind == "memory-growth"]
    assert growth.first_step is not None and growth.first_step < 1400
    planted_mib = (2500 - growth.first_step) * 64 / 1024
    assert 0.8 * planted_mib < growth.figures["grown_mib"] < 1.3 * planted_mib


@pytest.mark.job
@pytest.mark.full
def test_evaluations_are_pauses(tmp_path: Path) -> None:
    _, report = _watch(tmp_path, "--fault", "evaluates", "--steps", "2100")
    (pause,) = [pause for pause in report.pauses if pause.kind == "evaluation"]
    assert pause.recorded == 5 and pause.total_ms > 5 * 150 * 2
    (remark,) = [r for r in report.remarks if r.kind == "pause" and r.text.startswith("evaluation took")]
    assert (
        remark.figures["share_frac"] > 0.1 and f"{remark.figures['share_frac']:.1%} of the run" in remark.text
    )
    assert not [r for r in report.remarks if r.kind in ("drift", "jump")]


@pytest.mark.job
@pytest.mark.full
def test_a_rank_that_is_late_is_named(tmp_path: Path) -> None:
    observation, report = _watch(tmp_path, "--fault", "straggler", "--steps", "700", start=TORCHRUN)
    assert [rank.rank for rank in observation.ranks] == [0, 1]
    (late,) = [r for r in report.remarks if r.kind == "straggler"]
    assert late.rank == 1 and 3.0 < late.figures["behind_ms"] < 12.0
    assert "rank 1 begins its backward" in late.text and "they wait for it" in late.text


@pytest.mark.job
@pytest.mark.full
def test_memory_and_file_stay_small_over_twenty_thousand_steps(tmp_path: Path) -> None:
    observation, report = _watch(tmp_path, "--steps", "20000")
    assert report.steps == 20_000
    rank = observation.ranks[0]
    sizes = [s.host_rss_bytes for s in rank.segments if s.host_rss_bytes]
    early = next(s.host_rss_bytes for s in rank.segments if s.last_step > 2000 and s.host_rss_bytes)
    assert sizes[-1] - early < 2 << 20, (early, sizes[-1])
    (events,) = (tmp_path / "launch").glob("raw/rank-*/events.jsonl")
    size = events.stat().st_size
    assert size < 1_500_000, size
    assert len(rank.steps) < 3000 and len(rank.segments) < 300
    assert [a.last_step + 1 for a in rank.segments[:-1]] == [b.first_step for b in rank.segments[1:]]
    assert not [remark for remark in report.remarks if remark.kind == "memory-growth"]


@pytest.mark.job
def test_the_verb_leaves_the_job_alone_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = [sys.executable, str(SCRIPTS / "long_loop.py"), "--steps", "450", "--fault", "pauses"]
    assert run(["watch", "--runs-dir", "out", "--", *words]) == 0
    out, err = capfd.readouterr()
    assert out == "end of the job\n" and "450 steps on 1 rank" in err
    assert (tmp_path / "checkpoint.pt").exists()  # it wrote where it always writes
    (folder,) = (tmp_path / "out").iterdir()
    assert json.loads((folder / "watch.json").read_text())["steps"] == 450
    assert run(["watch", "--runs-dir", "out", "--json", "--from", "latest"]) == 0
    assert json.loads(capfd.readouterr().out)["steps"] == 450
    words = [sys.executable, "-c", "import sys; sys.exit(9)"]
    assert run(["analyze", "--watch", "--runs-dir", "out", "--", *words]) == 3
    assert "exit code 9" in capfd.readouterr().err


def test_changes_are_told_from_noise() -> None:
    noise = default_rng(0)
    flat = 100 + noise.normal(0, 5, 200)
    assert find_change(flat) is None and slow_stretches(flat) == []
    line = flat + np.linspace(0, 20, 200)
    drift = find_change(line)
    assert drift is not None and drift.kind == "drift" and 0.1 < drift.frac < 0.25
    step = flat + np.where(np.arange(200) < 120, 0, 20)
    jump = find_change(step)
    assert jump is not None and jump.kind == "jump" and abs(jump.at - 120) < 5
    assert find_change(np.full(5, 3.0)) is None and find_change(np.full(50, np.nan)) is None
    hill = np.where((np.arange(200) > 80) & (np.arange(200) < 100), 160.0, flat)
    assert find_change(hill) is None and slow_stretches(hill) == [(81, 99)]
    false = sum(find_change(100 + default_rng(seed).normal(0, 10, 40)) is not None for seed in range(200))
    assert false <= 4
