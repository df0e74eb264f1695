"""Every training style: the steps are found, no hook fails, and the losses stay bit for bit the same.

`python bench/compatibility.py` writes the table of docs/compatibility.md from what these tests record.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import SCRIPTS, TORCHRUN, faults, run, run_alone

pytestmark = pytest.mark.job

PYTHON = (sys.executable,)
ACCELERATE = (sys.executable, "-m", "accelerate.commands.launch", "--config_file")
FSDP2_CONFIG = str(SCRIPTS / "accelerate_fsdp2.yaml")
ONE = ("--cpu", "--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no")
STARTS = {
    "python": PYTHON,
    "python -m": PYTHON,
    "torchrun": TORCHRUN,
    "torchrun, 1 rank": (*TORCHRUN[:-1], "1"),
    "accelerate launch": (*ACCELERATE[:-1], *ONE, "--dynamo_backend", "no"),
    "accelerate launch, FSDP2 config": (*ACCELERATE, FSDP2_CONFIG),
    "deepspeed": (sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", "2"),
}
# style, start, script, words, optimizer steps, micro-batches of a step
STYLES = [
    ("plain loop", "python", "plain_loop.py", (), 36, 1),
    ("gradient accumulation", "python", "update_styles.py", ("--style", "accumulate"), 20, 3),
    ("two optimizers", "python", "update_styles.py", ("--style", "two"), 60, 1),
    ("two optimizers in turns, no loader", "python", "alternating_loop.py", (), 24, 1),
    ("generator and discriminator", "python", "gan_loop.py", (), 20, 3),
    ("closure (LBFGS), no loader", "python", "update_styles.py", ("--style", "closure-alone"), 12, None),
    ("closure (LBFGS)", "python", "update_styles.py", ("--style", "closure"), 60, None),
    ("updates by hand, no optimizer", "python", "update_styles.py", ("--style", "by-hand"), 60, 1),
    ("gradient scaler", "python", "update_styles.py", ("--style", "scaler"), 60, 1),
    ("optimizer inside the backward", "python", "update_styles.py", ("--style", "in-backward"), 60, 1),
    ("plain loop", "python -m", "training_package.train", (), 20, 1),
    ("accelerate", "python", "accelerate_loop.py", (), 14, 2),
    ("accelerate", "accelerate launch", "accelerate_loop.py", (), 14, 2),
    ("accelerate, DDP", "torchrun", "accelerate_loop.py", ("--examples", "224"), 14, 2),
    ("accelerate, FSDP2", "accelerate launch, FSDP2 config", "accelerate_fsdp2.py", (), 14, 1),
    ("transformers Trainer", "python", "trainer_loop.py", ("--output_dir", "out"), 12, 2),
    ("Lightning", "python", "lightning_loop.py", (), 14, 2),
    ("TRL SFTTrainer", "python", "trl_loop.py", (), 14, 1),
    ("DDP", "torchrun, 1 rank", "distributed_loop.py", ("--style", "ddp"), 28, 1),
    ("DDP", "torchrun", "distributed_loop.py", ("--style", "ddp"), 14, 1),
    ("FSDP1", "torchrun", "distributed_loop.py", ("--style", "fsdp1"), 14, 1),
    ("FSDP2", "torchrun", "distributed_loop.py", ("--style", "fsdp2"), 14, 1),
    ("DeepSpeed ZeRO 1", "deepspeed", "deepspeed_loop.py", ("--stage", "1"), 14, 2),
    ("DeepSpeed ZeRO 2", "deepspeed", "deepspeed_loop.py", ("--stage", "2"), 14, 2),
    ("DeepSpeed ZeRO 3", "deepspeed", "deepspeed_loop.py", ("--stage", "3"), 14, 2),
    ("compiled wrapper, fullgraph", "python", "compiled_loop.py", ("--how", "wrapper"), 16, 1),
    ("compiled in place, fullgraph", "python", "compiled_loop.py", ("--how", "in-place"), 16, 1),
    ("compiled blocks, fullgraph", "python", "compiled_loop.py", ("--how", "blocks"), 16, 1),
    ("compiled function, fullgraph", "python", "compiled_loop.py", ("--how", "function"), 16, 1),
]
NEEDS = {"Lightning": "lightning", "DeepSpeed": "deepspeed", "TRL": "trl"}
WHOLE_MATRIX = {
    "gradient scaler", "closure (LBFGS)", "closure (LBFGS), no loader", "two optimizers in turns, no loader",
    "compiled in place, fullgraph", "compiled blocks, fullgraph", "accelerate", "accelerate, DDP",
    "accelerate, FSDP2", "FSDP1", "FSDP2", "Lightning", "DeepSpeed ZeRO 1",
    "DeepSpeed ZeRO 2", "DeepSpeed ZeRO 3", "TRL SFTTrainer",
}  # fmt: skip


@pytest.mark.parametrize(
    ("style", "start", "script", "words", "steps", "micro_batches"),
    [
        pytest.param(
            *row,
            id=f"{row[0]}-{row[1]}",
            marks=[pytest.mark.full] if row[0] in WHOLE_MATRIX or row[1] == "torchrun, 1 rank" else [],
        )
        for row in STYLES
    ],
)
def test_job_is_observed_and_unchanged(
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    style: str,
    start: str,
    script: str,
    words: tuple[str, ...],
    steps: int,
    micro_batches: int | None,
) -> None:
    record_property("start", start)
    record_property("style", style)
    needed = NEEDS.get(style.split()[0])
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    prefix, env = STARTS[start], {}
    ranks = 1 if start.startswith("python") or start in ("accelerate launch", "torchrun, 1 rank") else 2
    if start == "python -m":
        script, env = f"-m {script}", {"PYTHONPATH": str(SCRIPTS)}
    alone = run_alone(tmp_path, script, *words, prefix=prefix, env=env)
    job = run(tmp_path, script, *words, prefix=prefix, env=env, mode="profile", stop="never")
    assert job.exit_code == 0, job.errors[:2000] + job.errors[-2000:]
    assert "end of the job" in job.output
    assert faults(job) == []
    assert alone
    assert job.losses == alone
    for rank in job.observation.ranks:
        assert rank.status == "completed"
        assert [step.index for step in rank.steps] == list(range(1, steps + 1))
        counts = {step.micro_batches for step in rank.steps}
        if "LBFGS" in style:
            assert max(counts) <= 6  # as often as the line search wants
        elif micro_batches is not None:
            assert counts == {micro_batches}
        assert rank.trace_file is not None or rank.rank != 0
        assert rank.model is not None
    assert [rank.rank for rank in job.observation.ranks] == list(range(ranks))
    if "compile" in script:
        assert "breaks 0" in job.output
        assert job.rank.counters["recompiles"] == 0 and job.rank.counters["compiled_graphs"] >= 1
    same = "losses equal bit for bit"
    record_property("result", f"{ranks} rank{'s' if ranks > 1 else ''}, {steps} steps found, {same}")
