"""Settings on the command line, in the style the command already uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.apply.flags import flag_value, remove_flag, set_flag
from autotune.apply.locate import EditRefused
from autotune.observe.command import read_command

CASES = [
    ("python t.py", "--bf16", "true", "python t.py --bf16 true"),
    ("python t.py --bf16 false --lr 1", "--bf16", "true", "python t.py --bf16 true --lr 1"),
    ("python t.py --bf16 --lr 1", "--bf16", "false", "python t.py --bf16 false --lr 1"),
    ("python t.py --bf16=false", "--bf16", "true", "python t.py --bf16=true"),
    ("python t.py --num-workers 0", "--num_workers", "4", "python t.py --num-workers 4"),
    ("python t.py --max-steps 9", "--num_workers", "4", "python t.py --max-steps 9 --num-workers 4"),
    ("python t.py --max_steps 9", "--num_workers", "4", "python t.py --max_steps 9 --num_workers 4"),
    ("python t.py --lr -1 --wd 0", "--lr", "-2", "python t.py --lr -2 --wd 0"),
    ("python t.py --a 1 --a 2", "--a", "3", "python t.py --a 1 --a 3"),
    ("python t.py -- x", "--a", "3", "python t.py --a 3 -- x"),
    ("torchrun --nproc-per-node 2 t.py --lr 1", "--nproc-per-node", "3",
     "torchrun --nproc-per-node 2 t.py --lr 1 --nproc-per-node 3"),
    ("python -m t a=1 +b.c=2", "b.c", "3", "python -m t a=1 +b.c=3"),
    ("python t.py model=x", "--attn", "sdpa", "python t.py model=x attn=sdpa"),
    ("python t.py", "loader.num_workers", "4", "python t.py loader.num_workers=4"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "name", "value", "expected"), CASES)
def test_set(tmp_path: Path, line: str, name: str, value: str, expected: str) -> None:
    (tmp_path / "t.py").touch()
    command = read_command(line.split(), tmp_path)
    new = set_flag(command.argv, command, name, value)
    assert " ".join(new) == expected
    assert set_flag(new, read_command(new, tmp_path), name, value) == new
    assert flag_value(new, read_command(new, tmp_path), name) == value


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python t.py --debug --lr 1", "python t.py --lr 1"),
        ("python t.py --debug true --lr 1", "python t.py --lr 1"),
        ("python t.py --debug=true", "python t.py"),
        ("python t.py debug=true lr=1", "python t.py lr=1"),
        ("python t.py --lr 1", "python t.py --lr 1"),
        ("python -X dev t.py --dev 1", "python -X dev t.py --dev 1"),
    ],
)
def test_remove(tmp_path: Path, line: str, expected: str) -> None:
    (tmp_path / "t.py").touch()
    command = read_command(line.split(), tmp_path)
    new = remove_flag(command.argv, command, "--debug")
    assert " ".join(new) == expected
    assert remove_flag(new, read_command(new, tmp_path), "--debug") == new


def test_a_shell_script_is_not_edited(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("python t.py\n")
    command = read_command(["bash", "run.sh", "x"], tmp_path)
    with pytest.raises(EditRefused, match="started by a shell script"):
        set_flag(command.argv, command, "--a", "1")
