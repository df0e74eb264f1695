"""Command lines as people type them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from autotune.errors import InputError, JobFailedError
from autotune.observe.attach import attachable, with_inject_folder
from autotune.observe.command import read_command
from autotune.observe.command_check import check_command
from autotune.records.command import JobCommand


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project folder with a script, configs, and a `bin` of launchers."""
    for name in ("train.py", "ds.json", "conf.yaml", "acc.yaml"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "base.yaml").write_text("{}")
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in ("torchrun", "accelerate", "deepspeed", "trl", "llamafactory-cli"):
        (binaries / name).write_text("#!/opt/env/bin/python3.12\nimport sys\n")
    for name in ("python", "python3", "srun", "uv", "sudo", "mpirun", "nsys", "docker", "apptainer"):
        (binaries / name).write_text("#!/bin/true\n")
    for file in binaries.iterdir():
        file.chmod(0o755)
    return tmp_path


def read(project: Path, line: str) -> JobCommand:
    return read_command(line.split(), project, f"{project}/bin:/usr/bin:/bin")


CASES = [
    ("python train.py --lr 1", "python", "train.py", None, ["--lr", "1"], None),
    ("python3 -u -X faulthandler train.py", "python", "train.py", None, [], None),
    ("python -W ignore -m pkg.train --a b", "python", None, "pkg.train", ["--a", "b"], None),
    ("python -um pkg.train x", "python", None, "pkg.train", ["x"], None),
    ("python -mpkg.train x", "python", None, "pkg.train", ["x"], None),
    ("torchrun --nproc-per-node 2 train.py --x", "torchrun", "train.py", None, ["--x"], 2),
    ("torchrun --standalone --nproc_per_node=4 train.py", "torchrun", "train.py", None, [], 4),
    ("torchrun --nproc-per-node gpu train.py", "torchrun", "train.py", None, [], None),
    ("torchrun --nnodes 1 --nproc-per-node 2 -m pkg.train y", "torchrun", None, "pkg.train", ["y"], 2),
    ("torchrun --some-new-switch train.py -v", "torchrun", "train.py", None, ["-v"], None),
    ("torchrun --some-new-option 3 train.py -v", "torchrun", "train.py", None, ["-v"], None),
    ("torchrun --no-python python train.py", "torchrun", "train.py", None, [], None),
    ("python -m torch.distributed.run --nproc-per-node 2 train.py a", "torchrun", "train.py", None, ["a"], 2),
    ("python -m torch.distributed.launch --use_env train.py a", "torchrun", "train.py", None, ["a"], None),
    ("accelerate launch --config_file acc.yaml train.py --b 1", "accelerate", "train.py", None, ["--b", "1"],
     None),
    ("accelerate launch --multi_gpu --num_processes 2 train.py", "accelerate", "train.py", None, [], 2),
    ("accelerate launch -m pkg.train c", "accelerate", None, "pkg.train", ["c"], None),
    ("python -m accelerate.commands.launch --cpu train.py", "accelerate", "train.py", None, [], None),
    ("deepspeed --num_gpus 2 train.py --deepspeed ds.json", "deepspeed", "train.py", None,
     ["--deepspeed", "ds.json"], 2),
    ("deepspeed --include localhost:0,1 --no_ssh train.py", "deepspeed", "train.py", None, [], None),
    ("trl sft --config conf.yaml", "trl", None, None, ["sft", "--config", "conf.yaml"], None),
    ("llamafactory-cli train conf.yaml", "console-script", None, None, ["train", "conf.yaml"], None),
    ("env A=1 B=2 python train.py", "python", "train.py", None, [], None),
    ("CUDA_VISIBLE_DEVICES=0 python train.py", "python", "train.py", None, [], None),
    ("nohup nice -n 5 python train.py", "python", "train.py", None, [], None),
    ("timeout -k 5 60 python train.py", "python", "train.py", None, [], None),
    ("taskset -c 0-1 python train.py", "python", "train.py", None, [], None),
    ("srun -N 1 --gres gpu:1 --kill-on-bad-exit torchrun --nproc-per-node 2 train.py", "torchrun", "train.py",
     None, [], 2),
    ("mpirun -np 2 -x PATH python train.py", "python", "train.py", None, [], None),
    ("uv run train.py --z", "python", "train.py", None, ["--z"], None),
    ("uv run --with rich python train.py", "python", "train.py", None, [], None),
    ("uv run -m pkg.train q", "python", None, "pkg.train", ["q"], None),
    ("nsys profile -o out --trace cuda python train.py", "python", "train.py", None, [], None),
    ("apptainer exec --nv -B /data image.sif python train.py", "python", "train.py", None, [], None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "launcher", "script", "module", "args", "processes"), CASES)
def test_reads(project: Path, line: str, launcher: str, script: str | None, module: str | None,
               args: list[str], processes: int | None) -> None:  # fmt: skip
    job = read(project, line)
    assert job.launcher == launcher
    assert job.script == (str(project / script) if script else None)
    assert job.module == module
    assert job.script_args == args
    assert job.processes_per_node == processes
    assert job.obstacles == []
    if job.script_index is not None:
        assert job.argv[job.script_index] == script
    if job.args_index is not None:
        assert job.argv[job.args_index :] == args


def test_config_files_are_found_with_their_owner(project: Path) -> None:
    job = read(
        project, "accelerate launch --config_file acc.yaml train.py --config=conf.yaml ds.json --out x.json"
    )
    found = [(Path(f.path).name, f.flag, f.owner, job.argv[f.index]) for f in job.config_files]
    assert found == [
        ("acc.yaml", "--config_file", "launcher", "acc.yaml"),
        ("conf.yaml", "--config", "script", "--config=conf.yaml"),
        ("ds.json", None, "script", "ds.json"),
    ]
    hydra = read(project, "python train.py --config-path conf --config-name base lr=1")
    assert [f.path for f in hydra.config_files] == [str(project / "conf" / "base.yaml")]


def test_interpreter_of_console_scripts_comes_from_their_first_line(project: Path) -> None:
    assert read(project, "torchrun train.py").interpreter == "/opt/env/bin/python3.12"
    assert read(project, "python train.py").interpreter == str(project / "bin" / "python")


def test_shell_script_is_read_for_the_launcher_inside(project: Path) -> None:
    (project / "run.sh").write_text(
        "#!/bin/bash\nset -e\n# python old.py\necho start\n"
        "torchrun --nproc-per-node 2 \\\n  train.py \\\n  --lr 3 # comment\n"
    )
    job = read(project, "bash -e run.sh now")
    assert (job.launcher, job.shell_script) == ("shell", str(project / "run.sh"))
    assert job.script == str(project / "train.py")
    assert job.processes_per_node == 2
    assert job.script_index is None  # not a word of this command line
    assert job.script_args == ["now"]
    assert job.obstacles == []
    text = read_command(["bash", "-c", "cd x && python train.py"], project, f"{project}/bin:/bin")
    assert text.script == str(project / "train.py")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("python -I train.py", "python -I ignores"),
        ("python -uE train.py", "python -E ignores"),
        ("env -i python train.py", "env -i empties"),
        ("env -u PYTHONPATH python train.py", "takes the variable away"),
        ("env PYTHONPATH=src python train.py", "sets PYTHONPATH itself"),
        ("sudo python train.py", "clean environment"),
        ("srun --export=NONE python train.py", "srun --export=NONE"),
        ("docker run image python train.py", "container"),
    ],
)
def test_known_obstacles(project: Path, line: str, reason: str) -> None:
    assert any(reason in obstacle for obstacle in read(project, line).obstacles)


def test_shell_script_that_drops_the_import_path(project: Path) -> None:
    (project / "run.sh").write_text("export A=1\nPYTHONPATH=. python train.py\n")
    assert "line 2 of run.sh sets PYTHONPATH" in read(project, "bash run.sh").obstacles[0]
    (project / "run.sh").write_text("PYTHONPATH=.:$PYTHONPATH python train.py\n")
    assert read(project, "bash run.sh").obstacles == []


def test_cleaned_environments_are_repaired_in_front_of_the_launcher(project: Path) -> None:
    job = read(project, "env -i A=1 python train.py")
    words, assigned = with_inject_folder(job, Path("/in"), "/in:/user")
    at = words.index("PYTHONPATH=/in:/user")
    assert words[:at][:2] == ["env", "-i"] and Path(words[at - 1]).name == "env"
    assert words[at + 1 :] == ["python", "train.py"] and assigned == {}
    job = read(project, "PYTHONPATH=src B=2 python train.py")
    words, assigned = with_inject_folder(job, Path("/in"), "/in")
    assert assigned["B"] == "2"
    assert "PYTHONPATH=/in:src" in words or assigned["PYTHONPATH"] == "/in:src"


def test_a_command_elsewhere_is_refused(project: Path) -> None:
    from autotune.errors import NotObservedError

    with pytest.raises(NotObservedError, match="start autotune inside it"):
        attachable(read(project, "docker run image python train.py"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pyhton3", "train.py"], "did you mean 'python3'"),
        (["python", "tarin.py"], "did you mean 'train.py'"),
        (["torchrun", "tarin.py"], "did you mean 'train.py'"),
        (["bash", "train.sh"], "no such script"),
        (["train.py"], "write: python train.py"),
        (["python train.py"], "without quotes"),
        (["env", "A=1", "torchrum", "train.py"], "did you mean 'torchrun'"),
    ],
)
def test_a_command_that_does_not_exist(project: Path, words: list[str], message: str) -> None:
    path = f"{project}/bin:/usr/bin:/bin"
    with pytest.raises(JobFailedError, match=message) as caught:
        check_command(read_command(words, project, path), path)
    assert caught.value.exit_code == 3


def test_an_empty_command_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_command([], tmp_path)


def test_real_interpreter_passes_the_check(project: Path) -> None:
    check_command(read_command([sys.executable, "train.py"], project), os.environ["PATH"])
