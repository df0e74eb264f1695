"""The shadow tree: what the job sees is its project, except where something is edited."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from apply_sites import site_in
from findings_made import diagnosis, finding, fix, observation, step

from autotune.apply.job import fingerprint_of, materialise
from autotune.apply.plan import build_plan
from autotune.apply.shadow import Shadow, original_of
from autotune.apply.workbench import digest
from autotune.errors import InputError
from autotune.records.plan import PatchedJob
from autotune.records.sites import Site

MAIN = """\
import multiprocessing
import os
import sys
from pathlib import Path

import helper
from pkg import part

HERE = Path(__file__).parent


def worker(queue):
    queue.put((helper.make(), Path(__file__).name, str(Path(__file__).parent) == str(HERE)))


if __name__ == "__main__":
    queue = multiprocessing.get_context("spawn").Queue()
    child = multiprocessing.get_context("spawn").Process(target=worker, args=(queue,))
    child.start()
    print("spawned", *queue.get(timeout=60))
    child.join()
    print("here", (HERE / "data.txt").read_text(), Path("data.txt").read_text())
    words = HERE.parent / "shared" / "words.txt"
    print("above", Path("../shared/words.txt").read_text(), words.read_text())
    print("edited", helper.make(), part.value(size=1), os.environ.get("SETTING"), sys.argv[1:])
    Path("written.txt").write_text("x")
"""

HELPER = """\
def make():
    return build(size=1)


def build(size):
    return f'size-{size}'
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "project"
    for name, text in {
        "main.py": MAIN,
        "helper.py": HELPER,
        "pkg/__init__.py": "",
        "pkg/part.py": "def value(size):\n    return size\n",
        "data.txt": "data",
        "runs/at-0/old.txt": "an older run",
        "../shared/words.txt": "words",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def grown(site: Site, size: int) -> Any:
    return finding("data/size", fix(step("set_keyword", at=site.kind, keywords={"size": str(size)})))


def run(job: PatchedJob) -> dict[str, str]:
    env = {k: v for k, v in {**os.environ, **job.env}.items() if v is not None}
    done = subprocess.run(job.command, cwd=job.cwd, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def make(
    project: Path, command: list[str], sites: list[Site], *findings: Any
) -> tuple[PatchedJob, PatchedJob]:
    seen = observation(command, project, sites)
    plan = build_plan(diagnosis(*findings), seen)
    assert all(g.admissible for g in plan.groups), plan.groups
    folder = project / "runs" / "at-1"
    folder.mkdir(parents=True)
    return (
        materialise([], seen, run=folder, label="baseline"),
        materialise(plan.groups, seen, run=folder, label="trial"),
    )


@pytest.mark.parametrize("how", ["relative", "absolute", "module"])
def test_a_job_runs_as_before_with_its_edits(project: Path, how: str) -> None:
    start = {"relative": ["main.py"], "absolute": [str(project / "main.py")], "module": ["-m", "main"]}[how]
    helper = site_in(project / "helper.py", "build", kind="loader", site_id="h")
    baseline, patched = make(project, [sys.executable, *start, "--x"], [helper], grown(helper, 7))
    before, after = run(baseline), run(patched)
    assert before["edited"] == "size-1 1 None ['--x']" and after["edited"] == "size-7 1 None ['--x']"
    assert before["spawned"] == "size-1 main.py True" and after["spawned"] == "size-7 main.py True"
    for name in ("here", "above"):
        assert before[name] == after[name] == {"here": "data data", "above": "words words"}[name]
    assert not (project / "written.txt").exists() and not (project / "__pycache__").exists()
    assert patched.fingerprint == digest(
        f"{digest(Path(patched.fingerprint_files[0]).read_bytes())}\n".encode()
    )
    assert baseline.fingerprint == "" and baseline.python_path == patched.python_path == []


@pytest.mark.parametrize("absolute", [False, True])
def test_a_shell_script_starts_the_edited_copy(project: Path, absolute: bool) -> None:
    script = project / "run.sh"
    script.write_text(f'cd "$(dirname "$(readlink -f "$0")")"\n{sys.executable} main.py "$@"\n')
    helper = site_in(project / "helper.py", "build", kind="loader")
    command = ["bash", str(script) if absolute else "run.sh", "--x"]
    baseline, patched = make(project, command, [helper], grown(helper, 7))
    assert run(baseline)["edited"] == "size-1 1 None ['--x']"
    assert run(patched)["edited"] == "size-7 1 None ['--x']"


def test_edits_stack_on_what_is_kept(project: Path) -> None:
    part = site_in(project / "main.py", "value", kind="carrier", site_id="p")
    helper = site_in(project / "helper.py", "build", kind="loader", site_id="h")
    command = [sys.executable, "main.py"]
    _, first = make(project, command, [part], grown(part, 3))
    # The next round watched the patched job: its sites lie in the shadow tree.
    tree = Path(first.tree)
    in_tree = [
        s.model_copy(update={"file": f"{tree}{s.file}"})
        for s in (helper, site_in(tree / str(project / "main.py")[1:], "value", kind="carrier", site_id="p"))
    ]
    in_tree[1] = in_tree[1].model_copy(update={"file": str(tree / str(project / "main.py")[1:])})
    seen = observation(first.command, Path(first.cwd), in_tree)
    plan = build_plan(diagnosis(grown(helper, 9)), seen, base=first)
    second = materialise(plan.groups, seen, run=project / "runs" / "at-1", label="trial-2", base=first)
    assert run(second)["edited"] == "size-9 3 None []"
    assert second.rules == ["data/size"] and {Path(f.path).name for f in second.files} == {
        "main.py",
        "helper.py",
    }
    assert second.original_command == command and second.original_cwd == str(project)
    back = build_plan(diagnosis(grown(in_tree[1], 1)), seen, base=first)
    undone = materialise(back.groups, seen, run=project / "runs" / "at-1", label="trial-3", base=first)
    assert undone.files == [], "an edit that restores the original leaves nothing edited"


def test_flags_config_and_variables_reach_the_job(project: Path) -> None:
    (project / "c.yaml").write_text("a: 1  # one\n")
    main = (project / "main.py").read_text()
    (project / "main.py").write_text(main + "    print('config', Path(sys.argv[2]).read_text().strip())\n")
    steps = [
        fix(step("set_key", key="a", value=2), surface="config"),
        fix(step("set_flag", name="--lr", value="3"), surface="flag"),
        fix(step("set_env", name="SETTING", value="on"), surface="env-var"),
    ]
    findings = [finding(f"x/{i}", how) for i, how in enumerate(steps)]
    command = [sys.executable, "main.py", "--config", "c.yaml"]
    baseline, patched = make(project, command, [], *findings)
    assert run(baseline)["config"] == "a: 1  # one"
    after = run(patched)
    assert after["config"] == "a: 2  # one"
    assert after["edited"] == "size-1 1 on ['--config', 'c.yaml', '--lr', '3']"
    assert patched.fingerprint == "", "no Python file was edited"
    assert (project / "c.yaml").read_text() == "a: 1  # one\n"


def test_packages_of_the_user_keep_their_folder(project: Path, tmp_path: Path) -> None:
    """A module of a package outside the script's folder: the tree's copy must win on the import path."""
    other = tmp_path / "home" / "library"
    (other / "lib").mkdir(parents=True)
    (other / "lib" / "__init__.py").write_text("")
    (other / "lib" / "core.py").write_text(
        "def f():\n    return g(size=1)\n\n\ndef g(size):\n    return size\n"
    )
    start = f"import sys\nsys.path.append({str(other)!r})\nfrom lib.core import f\nprint('value', f(), 'x')\n"
    (project / "go.py").write_text(start)
    site = site_in(other / "lib" / "core.py", "g", kind="loader")
    baseline, patched = make(project, [sys.executable, "go.py"], [site], grown(site, 5))
    assert run(baseline)["value"].startswith("1 ") and run(patched)["value"].startswith("5 ")


def test_the_tree_is_small_and_never_holds_itself(project: Path) -> None:
    (project / "big").mkdir()
    for i in range(300):
        (project / "big" / f"{i}.bin").touch()
    baseline, _ = make(project, [sys.executable, "main.py"], [])
    tree = Path(baseline.tree)
    inside = tree / str(project)[1:]
    assert (inside / "big").is_symlink() and not (inside / "main.py").is_symlink()
    assert not (inside / "runs").exists()
    assert (inside / "data.txt").resolve() == project / "data.txt"
    assert original_of(tree, inside / "pkg" / "part.py") == project / "pkg" / "part.py"
    assert original_of(tree, project) is None


def test_a_linked_script_lies_where_its_neighbours_are(project: Path, tmp_path: Path) -> None:
    link = tmp_path / "train.py"
    link.symlink_to(project / "main.py")
    baseline, _ = make(project, [sys.executable, str(link)], [])
    assert run(baseline)["edited"] == "size-1 1 None []"


def test_a_file_that_changed_meanwhile_is_refused(project: Path) -> None:
    site = site_in(project / "helper.py", "build", kind="loader")
    seen = observation([sys.executable, "main.py"], project, [site])
    plan = build_plan(diagnosis(grown(site, 7)), seen)
    (project / "helper.py").write_text("# changed\n" + (project / "helper.py").read_text())
    with pytest.raises(InputError, match=r"helper\.py has changed since it was watched"):
        materialise(plan.groups, seen, run=project / "runs" / "at-1", label="trial")


def test_shims_do_not_overwrite(project: Path) -> None:
    (project / "autotune_packed_batches.py").write_text("mine = 1\n")
    how = fix(
        step("use_shim", template="shims/packed_batches.py.j2", module="autotune_packed_batches"),
        surface="shim",
    )
    seen = observation([sys.executable, "main.py"], project)
    plan = build_plan(diagnosis(finding("a/b", how), packing__verdict="isolated"), seen)
    with pytest.raises(InputError, match="in the way of a module the patch brings"):
        materialise(plan.groups, seen, run=project / "runs" / "at-1", label="trial")


def test_a_module_the_patch_brought_before_is_not_in_its_way(project: Path) -> None:
    how = fix(
        step("use_shim", template="shims/packed_batches.py.j2", module="autotune_packed_batches"),
        surface="shim",
    )
    seen = observation([sys.executable, "main.py"], project)
    plan = build_plan(diagnosis(finding("a/b", how), packing__verdict="isolated"), seen)
    first = materialise(plan.groups, seen, run=project / "runs" / "at-1", label="one")
    shim = next(file for file in first.files if file.kind == "shim")
    (project / "autotune_packed_batches.py").write_bytes(Path(shim.shadow).read_bytes())
    again = materialise(plan.groups, seen, run=project / "runs" / "at-1", label="two")
    assert again.fingerprint == first.fingerprint


def test_unreadable_folders_are_passed_through(tmp_path: Path) -> None:
    shadow = Shadow(tmp_path / "tree", tmp_path / "run")
    shadow.make_real(Path("/no/such/folder"))
    assert shadow.path_of(Path("/no/such/folder")).is_dir()
    assert fingerprint_of([]) == ""


def test_pythonpath_entries_move_with_the_tree(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(project / "pkg"), "/elsewhere"]))
    (project / "main.py").write_text(
        textwrap.dedent("""\
        import part
        print("value", part.get())
    """)
    )
    (project / "pkg" / "part.py").write_text(
        "def get():\n    return value(size=1)\n\n\ndef value(size):\n    return size\n"
    )
    (project / "pkg" / "__init__.py").unlink()
    site = site_in(project / "pkg" / "part.py", "value", kind="loader")
    baseline, patched = make(project, [sys.executable, "main.py"], [site], grown(site, 4))
    assert run(baseline)["value"] == "1" and run(patched)["value"] == "4"
