"""Kill the generated script, or stop it, and start it again: the losses are those of an undisturbed run."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from script_job import DENSE, context, metrics, run, start, write_rows, write_script

from autotune.records.script import BatchContext, OptimizerContext, RunContext, ScriptContext

STEPS = 16


def job(folder: Path) -> Path:
    write_rows(folder, count=20)
    ctx: ScriptContext = context(
        DENSE,
        batch=BatchContext(rows_per_step=2, pad_multiple=8),
        optimizer=OptimizerContext(learning_rate=1e-2, max_steps=STEPS, warmup_steps=3, epochs=9),
        run=RunContext(output_dir="out", log_every=1, save_every=3, export=False),
    )
    return write_script(folder, ctx)


def losses(folder: Path, out: str) -> dict[int, float]:
    """Loss by step; a step that was run twice has to give the same loss twice."""
    found: dict[int, float] = {}
    for record in metrics(folder, out):
        step = int(record["step"])
        assert found.setdefault(step, record["loss"]) == pytest.approx(record["loss"], rel=1e-6)
    return found


def wait_for(
    condition: Callable[[], bool], processes: list[subprocess.Popen[str]], seconds: float = 200
) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the job did not get there in time"
        assert all(p.poll() is None for p in processes), processes[0].communicate()[0][-3000:]
        time.sleep(0.002)


def disturb(folder: Path, script: Path, with_signal: signal.Signals) -> list[str]:
    """Send the signal once step 6 is logged and a checkpoint is complete."""
    processes = start(folder, script, "--output-dir", "again", ranks=2)

    def reached() -> bool:
        done = any((folder / "again" / "checkpoints").glob("step_*/.metadata"))
        return done and len(metrics(folder, "again")) >= 6

    wait_for(reached, processes)
    for process in processes:
        process.send_signal(with_signal)
    return [process.communicate(timeout=100)[0] for process in processes]


@pytest.mark.job
def test_after_kill_9_the_losses_go_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    script = job(tmp_path)
    run(tmp_path, script, ranks=2)
    disturb(tmp_path, script, signal.SIGKILL)
    reached = max(losses(tmp_path, "again"))
    assert reached < STEPS
    output = run(tmp_path, script, "--output-dir", "again", ranks=2)
    first = int(output.split("steps ")[1].split()[0])
    assert 1 < first <= reached + 1
    undisturbed, again = losses(tmp_path, "out"), losses(tmp_path, "again")
    assert set(again) == set(undisturbed) == set(range(1, STEPS + 1))
    assert again == pytest.approx(undisturbed, rel=1e-6)


@pytest.mark.job
@pytest.mark.full
def test_sigterm_stops_all_ranks_after_one_step_with_a_checkpoint(tmp_path: Path) -> None:
    script = job(tmp_path)
    disturb(tmp_path, script, signal.SIGTERM)
    stopped = max(losses(tmp_path, "again"))
    assert stopped < STEPS
    newest = max((tmp_path / "again" / "checkpoints").glob("step_*/.metadata")).parent
    assert newest.name == f"step_{stopped:08d}"
    output = run(tmp_path, script, "--output-dir", "again", ranks=2)
    assert f"steps {stopped + 1} to {STEPS}" in output
    assert set(losses(tmp_path, "again")) == set(range(1, STEPS + 1))
