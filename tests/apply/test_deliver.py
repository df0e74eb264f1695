"""What the user gets: a diff, a manifest, files that run without autotune, and the way back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from apply_sites import site_in
from findings_made import diagnosis, finding, fix, observation, step

from autotune.apply.deliver import deliver, preview, revert
from autotune.apply.job import materialise
from autotune.apply.plan import build_plan
from autotune.errors import FilesError, InputError
from autotune.records.findings import Fix
from autotune.records.plan import InstalledPackage, Manifest, PatchedJob
from autotune.store import read_record

MAIN = '''"""A job."""
import sys
from pathlib import Path

import helper


def train(size):
    return size


if __name__ == "__main__":
    print(train(size=1), helper.make(), Path(__file__).name, *sys.argv[1:])
'''
HELPER = (
    "def make():\n    return build(size=1)\n\n\ndef build(size):\n    return size"  # no newline at the end
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "my project"
    folder.mkdir()
    (folder / "main.py").write_text(MAIN)
    (folder / "main.py").chmod(0o755)
    (folder / "helper.py").write_text(HELPER)
    (folder / "c.yaml").write_text("a: 1\n")
    return folder


def patched(project: Path, *fixes: Fix, command: list[str] | None = None) -> tuple[PatchedJob, Path]:
    sites = [
        site_in(project / "main.py", "train", kind="carrier", site_id="m"),
        site_in(project / "helper.py", "build", kind="loader", site_id="h"),
    ]
    seen = observation(command or [sys.executable, "main.py", "--x", "a b"], project, sites)
    plan = build_plan(diagnosis(*(finding(f"x/{i}", f) for i, f in enumerate(fixes))), seen)
    assert all(g.admissible for g in plan.groups), plan.groups
    run = project.parent / "runs" / "at-1"
    run.mkdir(parents=True, exist_ok=True)
    return materialise(plan.groups, seen, run=run, label="apply"), run


def snapshot(folder: Path) -> dict[str, bytes]:
    files = (
        p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts and ".git" not in p.parts
    )
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def shell(line: str, cwd: Path) -> str:
    done = subprocess.run(["bash", "-c", line], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def git(project: Path, *words: str) -> str:
    return shell("git -c user.name=n -c user.email=e@x " + " ".join(words), project)


IN_MAIN = fix(step("set_keyword", at="carrier", keywords={"size": "2"}))
IN_HELPER = fix(step("set_keyword", at="loader", keywords={"size": "3"}))
SHIM = fix(
    step("use_shim", template="shims/packed_attention.py.j2", module="autotune_packed_attention"),
    surface="shim",
)


def test_one_edited_script_becomes_a_sibling_that_runs_alone(project: Path) -> None:
    before = snapshot(project)
    job, run = patched(project, IN_MAIN)
    shown = preview(job)
    assert "-    print(train(size=1)" in shown and "+    print(train(size=2)" in shown
    dry = deliver(job, run=run, write=False)
    assert not dry.written and dry.files == [] and snapshot(project) == before
    manifest = deliver(job, run=run)
    assert manifest.mode == "sibling" and manifest.surfaces == ["call-site"]
    assert [Path(f.path).name for f in manifest.files] == ["main_autotuned.py"]
    assert Path(manifest.files[0].path).stat().st_mode & 0o777 == 0o755
    assert shell(manifest.launch_command, project) == "2 1 main_autotuned.py --x a b"
    assert read_record(run / "patched" / "manifest.json", Manifest) == manifest
    with pytest.raises(InputError, match=r"main_autotuned\.py: this run is applied already; .*--revert"):
        deliver(job, run=run)
    assert not deliver(job, run=run, write=False).written, "looking again must not lose the way back"
    assert revert(run) == [str(project / "main_autotuned.py")]
    assert snapshot(project) == before
    with pytest.raises(InputError, match="nothing of this run is applied"):
        revert(run)


def test_a_module_start_keeps_its_form(project: Path) -> None:
    job, run = patched(project, IN_MAIN, command=[sys.executable, "-m", "main", "--y"])
    manifest = deliver(job, run=run)
    assert manifest.launch_command.endswith("-m main_autotuned --y")
    assert shell(manifest.launch_command, project) == "2 1 main_autotuned.py --y"


def test_a_job_behind_a_shell_script_becomes_a_patch(project: Path) -> None:
    (project / "run.sh").write_text(f"{sys.executable} main.py\n")
    git(project, "init -q && git add -A && git -c user.name=n -c user.email=e@x commit -qm x")
    job, run = patched(project, IN_MAIN, command=["bash", "run.sh"])
    manifest = deliver(job, run=run)
    assert manifest.mode == "patch" and manifest.launch_command == "bash run.sh"
    git(project, "apply", Path(manifest.files[0].path).name)
    assert shell(manifest.launch_command, project) == "2 1 main.py"


def test_shims_lie_beside_the_sibling_and_go_with_it(project: Path) -> None:
    before = snapshot(project)
    job, run = patched(project, IN_MAIN, SHIM)
    manifest = deliver(job, run=run)
    assert {Path(f.path).name for f in manifest.files} == {
        "main_autotuned.py",
        "autotune_packed_attention.py",
    }
    assert "import autotune_packed_attention" in (project / "main_autotuned.py").read_text()
    assert len(revert(run)) == 2 and snapshot(project) == before


def test_several_files_become_a_patch_for_git(project: Path) -> None:
    git(project, "init -q && git add -A && git -c user.name=n -c user.email=e@x commit -qm x")
    before = snapshot(project)
    job, run = patched(project, IN_MAIN, IN_HELPER, SHIM)
    manifest = deliver(job, run=run)
    assert manifest.mode == "patch" and Path(manifest.files[0].path).name == "main_autotuned.patch"
    assert "git apply" in manifest.steps_by_hand[0]
    git(project, "apply", "main_autotuned.patch")
    assert (project / "helper.py").read_text() == HELPER.replace("size=1", "size=3")
    assert (project / "autotune_packed_attention.py").read_text().startswith('"""Attention')
    git(project, "apply -R main_autotuned.patch")
    revert(run)
    assert snapshot(project) == before


def test_in_place_wants_a_clean_git_tree_and_can_be_reverted(project: Path) -> None:
    job, run = patched(project, IN_MAIN, IN_HELPER)
    with pytest.raises(InputError, match="this is none"):
        deliver(job, run=run, in_place=True)
    git(project, "init -q && git add main.py c.yaml && git -c user.name=n -c user.email=e@x commit -qm x")
    with pytest.raises(InputError, match="only files git knows"):
        deliver(job, run=run, in_place=True)
    git(project, "add helper.py && git -c user.name=n -c user.email=e@x commit -qm y")
    (project / "c.yaml").write_text("a: 2\n")
    with pytest.raises(InputError, match="clean git tree; commit or stash"):
        deliver(job, run=run, in_place=True)
    git(project, "checkout -q c.yaml")
    before = snapshot(project)
    manifest = deliver(job, run=run, in_place=True)
    assert manifest.mode == "in-place"
    assert shell(manifest.launch_command, project) == "2 3 main.py --x a b"
    revert(run)
    assert snapshot(project) == before


def test_a_config_copy_changes_the_command(project: Path) -> None:
    config = fix(step("set_key", key="a", value=5), surface="config")
    env = fix(step("set_env", name="MODE", value="a b"), surface="env-var")
    unset = fix(step("set_env", name="OLD", value=None), surface="env-var")
    command = [sys.executable, "main.py", "--config=c.yaml"]
    job, run = patched(project, config, env, unset, command=command)
    manifest = deliver(job, run=run)
    assert manifest.mode == "command" and manifest.surfaces == ["config", "env-var"]
    assert (project / "c_autotuned.yaml").read_text() == "a: 5\n"
    assert manifest.launch_command.startswith("env -u OLD MODE='a b' ")
    assert shell(manifest.launch_command, project) == "1 1 main.py --config=c_autotuned.yaml"


def test_packages_are_on_the_path_of_the_command(project: Path) -> None:
    job, run = patched(project, IN_MAIN)
    extra = [InstalledPackage(name="x", version="1", imports=["x"])]
    manifest = deliver(job.model_copy(update={"python_path": ["/o v"], "packages": extra}), run=run)
    assert manifest.launch_command.startswith("PYTHONPATH='/o v'\"${PYTHONPATH:+:$PYTHONPATH}\" ")
    assert "x==1" in manifest.steps_by_hand[0]
    assert shell(manifest.launch_command, project) == "2 1 main_autotuned.py --x a b"


def changed(project: Path) -> None:
    (project / "main.py").write_text(MAIN + "# later\n")


def in_the_way(project: Path) -> None:
    (project / "main_autotuned.py").write_text("mine\n")


@pytest.mark.parametrize(
    ("spoil", "reason"), [(changed, "has changed since the run"), (in_the_way, "this file is there already")]
)
def test_nothing_is_written_over(project: Path, spoil: Any, reason: str) -> None:
    job, run = patched(project, IN_MAIN)
    spoil(project)
    before = snapshot(project)
    with pytest.raises(InputError, match=reason):
        deliver(job, run=run)
    assert snapshot(project) == before


def test_an_edited_result_is_not_taken_away(project: Path) -> None:
    job, run = patched(project, IN_MAIN)
    deliver(job, run=run)
    (project / "main_autotuned.py").write_text("improved by hand\n")
    with pytest.raises(InputError, match="edited after it was written"):
        revert(run)
    assert (project / "main_autotuned.py").read_text() == "improved by hand\n"


def test_a_folder_that_cannot_be_written(project: Path) -> None:
    job, run = patched(project, IN_MAIN, SHIM)
    before = snapshot(project)
    (project / f".autotune_packed_attention.py.{os.getpid()}.tmp").mkdir()
    with pytest.raises(FilesError):
        deliver(job, run=run)
    assert snapshot(project) == before
