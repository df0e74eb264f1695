"""Training jobs as people really write them: every step is found, no hook fails, and nothing changes."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import faults, run, run_alone, told

from autotune.observe.launch import launch
from autotune.observe.spec import LaunchSpec

pytestmark = pytest.mark.job
# training, start, function of odd_loops.py, steps, micro-batches (None: they differ), steps with tokens
STYLES = [
    ("an optimizer every fourth step", "python", "cadence", 48, 1, 48),
    ("gradient scaler with accumulation", "python", "scaler_accumulates", 12, 4, 12),
    ("an optimizer that is not torch's", "python", "own_optimizer", 24, 2, 24),
    ("optimizer classes of its own, nested", "python", "own_subclass", 48, 1, 48),
    ("gradients by torch.autograd.grad", "python", "autograd_grad", 48, 1, 48),
    ("gradient penalty", "python", "gradient_penalty", 48, 1, 48),
    ("two backwards and one update (SAM)", "python", "two_passes", 48, 2, 48),
    ("an optimizer for every parameter", "python", "per_parameter", 48, 1, 48),
    ("truncated back-propagation", "python", "truncated", 192, 1, None),
    ("failed backwards tried again", "python", "retries", 48, None, 48),
    ("the whole step compiled", "python", "step_function_compiled", 48, 1, 48),
    ("an endless IterableDataset", "python", "infinite", 48, 1, 48),
    ("a generator as loader", "python", "generator", 48, 1, None),
    ("batches fetched one ahead", "python", "one_ahead", 48, 1, 48),
    ("two trainings in one script", "python", "two_trainings", 48, 1, 48),
    ("the loop in a thread", "python", "thread", 48, 1, 48),
    ("the loop in asyncio", "python", "event_loop", 48, 1, 48),
    ("standard output replaced, error closed", "python", "streams", 48, 1, 48),
    ("all descriptors closed, as daemons do", "python", "descriptors", 48, 1, 48),
    ("changes its folder", "python", "moves", 48, 1, 48),
    ("starts itself again with exec", "python", "again", 48, 1, 48),
    ("trains in a subprocess", "python", "subprocess_trains", 48, 1, 48),
    ("trains in a subprocess with few variables", "python", "subprocess_with_few_variables", 48, 1, 48),
    ("a periodic signal", "python", "timer", 48, 1, 48),
    ("trains in a forked child", "python", "forked", 48, 1, 48),
    ("trains in a pool, forked", "python", "pool", 48, 1, 48),
    ("trains in a pool, spawned", "python", "spawn_pool", 48, 1, 48),
    ("sys.exit in the loop", "python", "exits", 48, 1, 48),
    ("warnings are errors", "python", "warnings_are_errors", 48, 1, 48),
]
# Updates without an optimizer of torch: "by-hand" of test_probe_styles.py
ALWAYS = {"descriptors", "subprocess_with_few_variables"}


@pytest.mark.parametrize(
    ("style", "start", "name", "steps", "micro_batches", "with_tokens"),
    [pytest.param(*row, id=row[2], marks=[] if row[2] in ALWAYS else [pytest.mark.full]) for row in STYLES],
)
def test_an_odd_job_is_observed_and_unchanged(
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    style: str,
    start: str,
    name: str,
    steps: int,
    micro_batches: int | None,
    with_tokens: int | None,
) -> None:
    record_property("start", start)
    record_property("style", style)
    alone = run_alone(tmp_path, "odd_loops.py", name)
    job = run(tmp_path, "odd_loops.py", name, mode="profile", stop="never")
    assert job.exit_code == 0, job.errors[-2000:]
    assert "end of the job" in job.output and faults(job) == []
    assert alone and job.losses == alone
    rank = job.rank
    assert [step.index for step in rank.steps] == list(range(1, steps + 1))
    if micro_batches is not None:
        assert {step.micro_batches for step in rank.steps} == {micro_batches}
    if with_tokens is not None:
        assert sum(step.tokens is not None for step in rank.steps) == with_tokens
    # a pool ends its workers by a signal
    assert rank.status == ("killed" if "pool" in name else "completed")
    assert rank.model is not None and rank.model.class_name == "Net" and rank.trace_file is not None
    record_property("result", f"1 rank, {steps} steps found, losses equal bit for bit")


@pytest.mark.parametrize(
    "name",
    [
        "own_optimizer", "autograd_grad", "retries", "step_function_compiled", "thread", "event_loop",
        "descriptors", "again", "subprocess_with_few_variables", "timer", "forked", "pool", "spawn_pool",
    ],
)  # fmt: skip
@pytest.mark.full
def test_an_odd_job_is_stopped(tmp_path: Path, name: str) -> None:
    script = Path(__file__).resolve().parents[1] / "scripts" / "odd_loops.py"
    spec = LaunchSpec(
        command=(sys.executable, str(script), name),
        cwd=tmp_path,
        folder=tmp_path / "launch",
        mode="timing",
        steps=4,
        warmup_steps=3,
        echo="none",
        env={"OMP_NUM_THREADS": "1"},
    )
    observation = launch(spec)
    (rank,) = observation.ranks
    assert rank.status == "stopped" and rank.hook_faults == [] and len(rank.steps) == 7
    assert observation.exit_code in (0, None) and observation.stop_reason is None, observation.log_tail
    assert observation.wall_s < 60


@pytest.mark.full
def test_hydra_with_a_folder_of_its_own(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if importlib.util.find_spec("hydra") is None:
        pytest.skip("hydra-core is not installed")
    job = run(tmp_path, "odd_hydra.py", "hydra.job.chdir=true", "epochs=3", mode="profile", stop="never")
    assert job.exit_code == 0 and faults(job) == [], job.errors[-2000:]
    assert len(job.rank.steps) == 48 and "end of the job" in job.output
    told(record_property, "python", "Hydra with job.chdir", "1 rank, 48 steps found, no hook failed")


@pytest.mark.full
def test_lightning_with_manual_optimization(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("lightning is not installed")
    job = run(tmp_path, "odd_lightning.py", mode="profile", stop="never")
    assert job.exit_code == 0 and faults(job) == [], job.errors[-2000:]
    assert len(job.rank.steps) == 48 and {step.micro_batches for step in job.rank.steps} == {2}
    told(
        record_property,
        "python",
        "Lightning, manual optimization of two models",
        "1 rank, 48 steps of 2 backwards found, no hook failed",
    )
