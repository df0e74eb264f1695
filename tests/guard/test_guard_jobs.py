"""Real jobs that save, rotate, log and resume: an observed run leaves every byte of the user's tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from guarded import Guarded, tree

from autotune.observe.launch import launch
from autotune.observe.spec import LaunchSpec
from autotune.records.observation import Observation

pytestmark = pytest.mark.job
SCRIPTS = Path(__file__).parents[1] / "scripts"
PYTHON = sys.executable
TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]


def observe(project: Path, folder: Path, command: list[str], **more: object) -> Observation:
    """One guarded launch; the job must end well and be seen."""
    spec = LaunchSpec(
        command=tuple(command), cwd=project, folder=folder, mode="timing", steps=5, warmup_steps=3,
        echo="none", total_timeout_s=200, keep_sandbox=True, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    observation = launch(spec)
    log = (folder / "train.log").read_text()
    assert observation.exit_code == 0, log
    assert observation.ranks and all(rank.status == "stopped" for rank in observation.ranks), log
    assert all(not rank.hook_faults for rank in observation.ranks)
    return observation


def start(project: Path, script: str, command: list[str], **variables: str) -> None:
    """The user's own earlier run, without us."""
    project.mkdir()
    shutil.copy(SCRIPTS / script, project / script)
    env = {**os.environ, **variables}
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def actions(observation: Observation) -> set[tuple[str, str]]:
    return {(g.action, os.path.basename(g.target)) for g in observation.guards}


@pytest.fixture(scope="module")
def plain_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the user's own run of five steps left."""
    project = tmp_path_factory.mktemp("user") / "project"
    start(project, "saves_plain.py", [PYTHON, "saves_plain.py", "5"])
    return project


def copy(project: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(project, tmp_path / "project", symlinks=True))


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param((), id="plain", marks=pytest.mark.full),
        pytest.param(("2",), id="fork workers"),
        pytest.param(("1", "spawn"), id="spawn workers"),
    ],
)
def test_plain_loop(plain_project: Path, tmp_path: Path, workers: tuple[str, ...]) -> None:
    project = copy(plain_project, tmp_path)
    before = tree(project)
    observation = observe(project, tmp_path / "launch", [PYTHON, "saves_plain.py", "90", *workers])
    assert tree(project) == before
    log = (tmp_path / "launch" / "train.log").read_text()
    assert "resumed from 4" in log
    assert "lines 12" in log  # five of the user's own run, and ours up to the stop inside its eighth step
    seen = actions(observation)
    assert {
        ("redirected", "model.pt"),
        ("redirected", "metrics.jsonl"),
        ("suppressed", "checkpoint-4"),
    } <= seen
    assert ("redirected", "seen.txt") in seen or not workers
    assert not any(action == "refused" for action, _ in seen)
    save = next(g for g in observation.guards if g.target.endswith("project/model.pt"))
    assert (save.call, Path(save.file or "").name) == ("torch.save", "saves_plain.py")


@pytest.mark.parametrize("temporary", ["TMPDIR", ""])
def test_what_lies_in_a_folder_for_temporary_files_already_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: str
) -> None:
    """Jobs often live on node-local scratch; the command may be given from somewhere else."""
    scratch = tmp_path / "scratch"
    (scratch / "project" / "checkpoint-1").mkdir(parents=True)
    (scratch / "results").mkdir()
    (scratch / "project" / "checkpoint-1" / "model.bin").write_bytes(b"precious")
    (scratch / "project" / "job.py").write_text(
        "import pathlib, shutil, tempfile\n"
        "here = pathlib.Path(__file__).parent\n"
        "shutil.rmtree(here / 'checkpoint-1')\n"
        "(here / 'checkpoint-2').mkdir()\n"
        "(here.parent / 'results' / 'log.txt').write_text('ours')\n"
        "kept = tempfile.mkdtemp()\n"
        "print('made', kept, (here / 'checkpoint-2').is_dir(), (here / 'checkpoint-1').exists())\n"
    )
    (tmp_path / "elsewhere").mkdir()
    if temporary:
        monkeypatch.setenv(temporary, str(scratch))
    before = tree(scratch)
    command = (PYTHON, str(scratch / "project" / "job.py"))
    spec = LaunchSpec(command=command, cwd=tmp_path / "elsewhere", folder=tmp_path / "launch", echo="none")
    observation = launch(spec)
    log = (tmp_path / "launch" / "train.log").read_text()
    made = Path(log.split()[1])
    assert log.split()[2:] == ["True", "False"] and made.is_dir(), log  # new temporary files are the job's
    made.rmdir()
    assert tree(scratch) == before
    assert any("1 removal" in note and "checkpoint-1" in note for note in observation.notes)


@pytest.mark.full
def test_trainer_with_hub_pushes(tmp_path: Path) -> None:
    project = tmp_path / "project"
    start(project, "saves_trainer.py", [PYTHON, "saves_trainer.py", "4"])
    before = tree(project)
    observation = observe(project, tmp_path / "launch", [PYTHON, "saves_trainer.py", "80", "--push"])
    assert tree(project) == before
    log = (tmp_path / "launch" / "train.log").read_text()
    assert "resume out/checkpoint-4" in log
    calls = {(g.action, g.call) for g in observation.guards}
    assert ("suppressed", "huggingface_hub.create_repo") in calls
    assert ("suppressed", "huggingface_hub.upload_folder") in calls
    assert ("suppressed", "shutil.rmtree") in calls
    assert not any(action == "refused" for action, _ in calls)


@pytest.mark.full
def test_fsdp2_with_distributed_checkpoints(tmp_path: Path) -> None:
    project = tmp_path / "project"
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    start(project, "saves_fsdp2.py", [PYTHON, "saves_fsdp2.py", "4", "--end"], **alone)
    before = tree(project)
    observation = observe(project, tmp_path / "launch", [*TORCHRUN, "saves_fsdp2.py", "60"])
    assert tree(project) == before
    assert len(observation.ranks) == 2
    assert "resumed from 4" in (tmp_path / "launch" / "train.log").read_text()
    assert ("suppressed", "step-4") in actions(observation)


def test_without_protection_the_job_writes_where_the_user_writes(plain_project: Path, tmp_path: Path) -> None:
    project = copy(plain_project, tmp_path)
    spec = LaunchSpec(
        command=(PYTHON, "saves_plain.py", "8"), cwd=project, folder=tmp_path / "launch", mode="watch",
        stop="never", echo="none", total_timeout_s=100,
    )  # fmt: skip
    observation = launch(spec)
    assert observation.exit_code == 0 and observation.guards == []
    assert sorted(p.name for p in (project / "out").iterdir()) == ["checkpoint-6", "checkpoint-8", "latest"]


def test_allowed_paths_are_written(plain_project: Path, tmp_path: Path) -> None:
    project = copy(plain_project, tmp_path)
    command = [PYTHON, "saves_plain.py", "90"]
    observation = observe(project, tmp_path / "launch", command, allow_write=(project / "metrics.jsonl",))
    assert len((project / "metrics.jsonl").read_text().splitlines()) > 5
    assert ("allowed", "metrics.jsonl") in actions(observation)
    assert sorted(p.name for p in (project / "out").iterdir()) == ["checkpoint-2", "checkpoint-4", "latest"]


NATIVE = """
    import os, torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
    from tokenizers import Tokenizer, models
    save_file({"a": torch.ones(2)}, "weights.safetensors")
    assert load_file("weights.safetensors")["a"].sum() == 2
    with safe_open("weights.safetensors", "pt") as file: assert list(file.keys()) == ["a"]
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.save("tokenizer.json")
    assert Tokenizer.from_file("tokenizer.json").get_vocab_size() == 2
    os.mkdir("vocabulary"); tokenizer.model.save("vocabulary")
    assert os.listdir("vocabulary") == ["vocab.json"]
    torch.save({"a": torch.ones(3)}, "m.pt")
    assert torch.load("m.pt", mmap=True)["a"].sum() == 3
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), "script.pt"); torch.jit.load("script.pt")
    try: import pyarrow, pyarrow.parquet
    except ImportError: pyarrow = None
    if pyarrow:
        table = pyarrow.table({"a": [1, 2]})
        pyarrow.parquet.write_table(table, "t.parquet")
        with pyarrow.OSFile("t.arrow", "wb") as out, pyarrow.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
        assert pyarrow.ipc.open_file(pyarrow.memory_map("t.arrow")).read_all() == table
    print(sorted(os.listdir(".")))
"""


def test_writers_in_native_code(guarded: Guarded) -> None:
    before = tree(guarded.project)
    seen = guarded.python(NATIVE)
    assert tree(guarded.project) == before
    assert "tokenizer.json" in seen and "m.pt" in seen and "vocabulary" in seen
