"""How jobs end: stopped by us, swallowed stops, crashes, kills, and jobs that never train."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import TORCHRUN, environment, faults, run, told

from autotune.errors import NotObservedError
from autotune.observe.outcome import require_steps
from autotune.probe.tracing import size

pytestmark = pytest.mark.job
Record = Callable[[str, object], None]


def test_stop_after_the_windows_runs_the_clean_up(tmp_path: Path) -> None:
    job = run(tmp_path, "plain_loop.py", mode="profile", steps=6, warmup_steps=4)
    assert job.exit_code == 0
    assert "clean-up" in job.output and "end of the job" not in job.output
    assert faults(job) == []
    rank = job.rank
    assert rank.status == "stopped"
    begin = next(w.begins_after for w in rank.windows if w.name == "timing")
    assert 3 <= begin <= 4
    # warm-up, timing window, one step for the profiler to start up, one profiled step
    assert len(rank.steps) == begin + 6 + 2
    timed = [step.index for step in rank.steps if not step.tags]
    assert timed == list(range(begin + 1, begin + 7))
    assert [step.index for step in rank.steps if "profiled" in step.tags] == [begin + 7, begin + 8]
    assert rank.traced_steps == 1 and rank.trace_file is not None
    assert (job.folder / rank.trace_file).is_file()


@pytest.mark.parametrize(
    ("ending", "stop"), [("bare-except", "soft"), pytest.param("normal", "hard", marks=pytest.mark.full)]
)
def test_stop_holds_against_the_job(tmp_path: Path, ending: str, stop: str, record_property: Record) -> None:
    job = run(tmp_path, "plain_loop.py", "--ending", ending, "--epochs", "99", stop=stop, mode="timing")
    assert job.exit_code == 0
    assert job.rank.status == "stopped"
    assert "end of the job" not in job.output and "clean-up" not in job.output
    assert job.output.count("swallowed") == (1 if ending == "bare-except" else 0)
    if ending == "bare-except":
        told(record_property, "python", "bare except", "1 rank, stopped although swallowed, exit code 0")


@pytest.mark.parametrize("style", [pytest.param("ddp", marks=pytest.mark.full), "fsdp2"])
def test_two_ranks_stop_at_the_same_step_and_the_launcher_reports_success(
    request: pytest.FixtureRequest, tmp_path: Path, style: str
) -> None:
    if style == "fsdp2":
        job = request.getfixturevalue("two_fsdp2_ranks")
    else:
        words = ("--style", style, "--steps", "400")
        job = run(tmp_path, "distributed_loop.py", *words, prefix=TORCHRUN, mode="profile", steps=6)
    assert job.exit_code == 0, job.errors[-2000:]
    assert faults(job) == []
    ranks = job.observation.ranks
    assert [rank.rank for rank in ranks] == [0, 1]
    assert [rank.world_size for rank in ranks] == [2, 2]
    assert {rank.status for rank in ranks} == {"stopped"}
    assert len({len(rank.steps) for rank in ranks}) == 1
    assert ranks[0].trace_file is not None and ranks[1].trace_file is None
    # rank 1 is not profiled but waits for rank 0 in those steps: not speed either
    assert [s.index for s in ranks[1].steps if "profiled" in s.tags] == [
        s.index for s in ranks[0].steps if "profiled" in s.tags
    ]


def test_crash_keeps_what_was_seen_and_hides_secrets(tmp_path: Path) -> None:
    job = run(tmp_path, "plain_loop.py", "--ending", "crash", mode="profile")
    assert job.exit_code == 1
    assert "ValueError: the data is bad" in job.errors
    assert job.rank.status == "exception"
    assert job.rank.error is not None and job.rank.error.startswith("ValueError: the data is bad")
    assert len(job.rank.steps) == 2
    everything = "".join(p.read_text() for p in job.folder.glob("raw/*/*.json*") if p.suffix != ".gz")
    assert "hf_abcdefghijklmnop" not in everything


def test_an_error_is_shown_as_it_is_without_the_observer(tmp_path: Path) -> None:
    """Neither our wrappers nor lines of the profiler's library stand in the job's error stream."""
    script = tmp_path / "job.py"
    script.write_text(
        "import torch\nm = torch.nn.Linear(2, 2)\no = torch.optim.SGD(m.parameters(), lr=0.1)\n"
        "for _ in range(14):\n    loss = m(torch.ones(1, 2)).exp().sum()\n    loss.backward(); o.step()\n"
        "try:\n    loss.backward()\nexcept RuntimeError as error:\n    first = error\n"
        "try:\n    list(torch.utils.data.DataLoader([1, None], num_workers=1))\n"
        "except TypeError as error:\n    raise error from first\n"
    )
    alone = subprocess.run([sys.executable, script], env=environment(), capture_output=True, text=True)
    job = run(tmp_path, str(script), mode="profile", stop="never", steps=4, warmup_steps=4)
    assert job.rank.trace_file is not None and job.rank.status == "exception" and faults(job) == []
    assert "loss.backward()" in alone.stderr and "worker process 0" in alone.stderr
    assert job.exit_code == alone.returncode == 1
    assert job.errors == alone.stderr


def test_out_of_memory_is_told(tmp_path: Path) -> None:
    job = run(tmp_path, "plain_loop.py", "--ending", "out-of-memory")
    assert job.exit_code == 1 and job.rank.status == "exception" and len(job.rank.steps) == 2
    assert job.rank.memory is not None and job.rank.memory.out_of_memory


def test_os_exit_and_kill_leave_every_finished_step(tmp_path: Path, record_property: Record) -> None:
    left = run(tmp_path / "a", "plain_loop.py", "--ending", "os-exit", mode="profile", steps=50)
    assert left.exit_code == 0
    assert left.rank.status == "completed" and len(left.rank.steps) == 4
    killed = run(tmp_path / "b", "plain_loop.py", "--ending", "kill", mode="profile", steps=50)
    assert killed.exit_code == -9
    assert killed.rank.status == "killed" and len(killed.rank.steps) == 4
    assert killed.rank.model is not None and killed.rank.model.class_name == "Model"
    told(record_property, "python", "os._exit, kill -9", "1 rank, every finished step is there")


@pytest.mark.full
def test_killed_ranks_leave_every_finished_step(tmp_path: Path, record_property: Record) -> None:
    words = ("--style", "ddp", "--kill-after", "9", "--steps", "40")
    job = run(tmp_path, "distributed_loop.py", *words, prefix=TORCHRUN, mode="profile", steps=50)
    assert job.exit_code != 0
    for rank in job.observation.ranks:
        assert rank.status == "killed" and rank.model is not None
        assert [step.index for step in rank.steps] == list(range(1, 10))
    assert [rank.rank for rank in job.observation.ranks] == [0, 1]
    told(record_property, "torchrun", "DDP, kill -9 of its ranks", "2 ranks, every finished step is there")


def test_a_job_that_never_trains_has_no_rank(tmp_path: Path) -> None:
    job = run(tmp_path, "plain_loop.py", "--ending", "never-trains", "--workers", "1")
    assert job.exit_code == 0 and "nothing to train 12" in job.output
    assert job.observation.ranks == []
    assert [hello["kind"] for hello in job.hello] == ["script"]


def test_gradients_without_updates_are_no_training(tmp_path: Path) -> None:
    job = run(tmp_path, "update_styles.py", "--style", "gradients-only")
    assert job.exit_code == 0 and job.rank.steps == [] and faults(job) == []
    with pytest.raises(NotObservedError, match="backward passes were seen, but no update"):
        require_steps(job.observation)


def test_watch_runs_to_the_end(tmp_path: Path) -> None:
    job = run(tmp_path, "plain_loop.py", mode="watch", stop="never")
    assert "end of the job" in job.output
    assert job.rank.status == "completed" and len(job.rank.steps) == 36
    assert job.rank.trace_file is None and job.observation.sites == []
    progress = json.loads((job.folder / "raw" / "progress.json").read_text())
    assert progress["of"] is None and progress["world_size"] == 1


def test_long_steps_shorten_the_profiled_window(tmp_path: Path) -> None:
    assert size(3, 1.0, 4, 3_000_000) == (3, 4, "")
    assert size(3, 6.0, 4, 3_000_000) == (2, 4, "2 of 3 steps were profiled: they are long")
    assert size(1, 24.0, 8, 3_000_000)[:2] == (1, 4)
    assert size(1, 24.0, 1, 3_000_000)[:2] == (1, 1)
    words = ("--style", "accumulate")
    job = run(tmp_path, "update_styles.py", *words, mode="profile", more={"max_trace_events": 1})
    assert faults(job) == []
    assert job.rank.traced_steps == 1 and job.rank.traced_micro_batches == 1
    assert any("last 1 of 3 micro-batches" in note for note in job.observation.notes)
    assert job.rank.trace_file is not None
    with gzip.open(job.folder / job.rank.trace_file, "rt") as file:
        names = [event.get("name", "") for event in json.load(file)["traceEvents"]]
    assert names.count("aten::embedding_dense_backward") == 1
    assert any(name.startswith("Optimizer.step#SGD") for name in names)
