"""Every training style: the steps are found, no hook fails, and the losses stay bit for bit the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jobs import TORCHRUN, faults, run, run_alone

pytestmark = pytest.mark.job

# (name, start, script, words, optimizer steps, micro-batches of a step)
STYLES = [
    ("plain", "python", "plain_loop.py", (), 36, 1),
    ("accumulate", "python", "update_styles.py", ("--style", "accumulate"), 20, 3),
    ("two-optimizers", "python", "update_styles.py", ("--style", "two"), 60, 1),
    ("closure", "python", "update_styles.py", ("--style", "closure"), 60, 3),
    ("grad-scaler", "python", "update_styles.py", ("--style", "scaler"), 60, 1),
    ("optimizer-in-backward", "python", "update_styles.py", ("--style", "in-backward"), 60, 1),
    ("module", "module", "training_package.train", (), 20, 1),
    ("accelerate", "python", "accelerate_loop.py", (), 14, 2),
    ("trainer", "python", "trainer_loop.py", ("--output_dir", "out"), 12, 2),
    ("ddp", "torchrun", "distributed_loop.py", ("--style", "ddp"), 14, 1),
    ("fsdp2", "torchrun", "distributed_loop.py", ("--style", "fsdp2"), 14, 1),
    ("compile-wrapper", "python", "compiled_loop.py", ("--how", "wrapper"), 16, 1),
    ("compile-in-place", "python", "compiled_loop.py", ("--how", "in-place"), 16, 1),
    ("compile-blocks", "python", "compiled_loop.py", ("--how", "blocks"), 16, 1),
    ("compile-function", "python", "compiled_loop.py", ("--how", "function"), 16, 1),
]


WHOLE_MATRIX = {"grad-scaler", "closure", "compile-in-place", "compile-blocks", "accelerate", "fsdp2"}


@pytest.mark.parametrize(
    ("start", "script", "words", "steps", "micro_batches"),
    [pytest.param(*s[1:], id=s[0], marks=[pytest.mark.full] if s[0] in WHOLE_MATRIX else []) for s in STYLES],
)
def test_job_is_observed_and_unchanged(
    tmp_path: Path, start: str, script: str, words: tuple[str, ...], steps: int, micro_batches: int
) -> None:
    prefix = TORCHRUN if start == "torchrun" else (sys.executable,)
    env = {}
    if start == "module":
        script, env = f"-m {script}", {"PYTHONPATH": str(Path(__file__).parents[1] / "scripts")}
    alone = run_alone(tmp_path, script, *words, prefix=prefix, env=env)
    job = run(tmp_path, script, *words, prefix=prefix, env=env, mode="profile", stop="never")
    assert job.exit_code == 0, job.errors[-2000:]
    assert "end of the job" in job.output
    assert faults(job) == []
    assert len(alone) >= steps
    assert job.losses == alone
    for rank in job.observation.ranks:
        assert rank.status == "completed"
        assert [step.index for step in rank.steps] == list(range(1, steps + 1))
        counts = {step.micro_batches for step in rank.steps}
        if script == "update_styles.py" and "closure" in words:
            assert max(counts) <= 2 * micro_batches  # as often as the line search wants
        else:
            assert counts == {micro_batches}
        assert rank.trace_file is not None or rank.rank != 0
        assert rank.model is not None
    if start == "torchrun":
        assert [rank.rank for rank in job.observation.ranks] == [0, 1]
    if "compile" in script:
        assert "breaks 0" in job.output
        assert job.rank.counters["recompiles"] == 0 and job.rank.counters["compiled_graphs"] >= 1
