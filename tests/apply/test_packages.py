"""Packages go into a folder of the run: only the patched arm sees them."""

from __future__ import annotations

import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from findings_made import diagnosis, finding, fix, observation, step

from autotune.apply.job import materialise
from autotune.apply.overlay_folder import take_in
from autotune.apply.packages import environment_packages, install
from autotune.apply.plan import build_plan
from autotune.errors import InputError

pytestmark = pytest.mark.job


def wheel(
    folder: Path,
    name: str,
    source: str,
    requires: tuple[str, ...] = (),
    version: str = "1.0",
    file: str | None = None,
) -> None:
    """A pure Python wheel with one file, written by hand."""
    file = file or f"{name}/__init__.py"
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {r}\n" for r in requires)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as out:
        out.writestr(file, source)
        out.writestr(f"{info}/METADATA", metadata)
        out.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        out.writestr(f"{info}/RECORD", f"{file},,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A user's environment of its own, with nothing but pip."""
    folder = tmp_path_factory.mktemp("env") / "venv"
    venv.create(folder, with_pip=True, symlinks=True)
    return str(folder / "bin" / "python")


def test_only_the_patched_arm_sees_the_packages(tmp_path: Path, interpreter: str) -> None:
    house = tmp_path / "wheels"
    wheel(
        house,
        "fastkernels",
        "import deepdep\nSPEED = deepdep.SPEED\n",
        ("deepdep>=1", "extra-thing; extra == 'x'", "pip"),
    )
    wheel(house, "deepdep", "SPEED = 3\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "main.py").write_text(
        "try:\n    import fastkernels\n    print(fastkernels.SPEED)\nexcept ImportError:\n    print('slow')\n"
    )
    seen = observation([interpreter, "main.py"], project, interpreter=interpreter)
    how = fix(step("install", packages=["fastkernels"]), surface="package")
    plan = build_plan(diagnosis(finding("kernels/fallback", how)), seen)
    run = tmp_path / "runs" / "at-1"
    run.mkdir(parents=True)
    before = environment_packages(interpreter)
    lines: list[str] = []
    baseline = materialise([], seen, run=run, label="baseline")
    patched = materialise(plan.groups, seen, run=run, label="t", wheelhouse=house, progress=lines.append)
    assert environment_packages(interpreter) == before, "the user's environment is as it was"
    arms = [environment_packages(interpreter, job.python_path) for job in (baseline, patched)]
    assert {**arms[0], "fastkernels": "1.0", "deepdep": "1.0"} == arms[1]
    assert arms[0] == before
    assert [(p.name, p.imports) for p in patched.packages] == [
        ("deepdep", ["deepdep"]),
        ("fastkernels", ["fastkernels"]),
    ]
    assert any(line.startswith("installing fastkernels: ") for line in lines)
    for job, expected in ((baseline, "slow"), (patched, "3")):
        env = {"PYTHONPATH": ":".join(job.python_path)}
        assert (
            subprocess.run(job.command, cwd=job.cwd, env=env, capture_output=True, text=True).stdout.strip()
            == expected
        )
    again = install(["fastkernels"], interpreter=interpreter, run=run, wheelhouse=None)
    assert [p.name for p in again.packages] == ["deepdep", "fastkernels"], "the same set is installed once"


def test_two_packages_share_a_module(tmp_path: Path, interpreter: str) -> None:
    house = tmp_path / "wheels"
    wheel(
        house, "linear_layers", "import linear.ops\n", ("linear_core>=2",), file="linear/layers/__init__.py"
    )
    wheel(house, "linear_core", "OLD = True\n", version="1.0", file="linear/old.py")
    wheel(house, "linear_core", "FAST = True\n", version="2.0", file="linear/ops/__init__.py")
    for number, wanted in enumerate((["linear_layers"], ["linear_core", "linear_layers"])):
        overlay = install(wanted, interpreter=interpreter, run=tmp_path / f"run-{number}", wheelhouse=house)
        assert sorted(str(p.relative_to(overlay.folder)) for p in overlay.folder.rglob("*.py")) == [
            "linear/layers/__init__.py",
            "linear/ops/__init__.py",
        ]
        assert {p.name: p.version for p in overlay.packages} == {"linear-core": "2.0", "linear-layers": "1.0"}
        assert list(overlay.folder.parent.iterdir()) == [overlay.folder]


def test_an_older_version_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "overlay"
    folder.mkdir()
    for version, file in (("1.0", "linear/old.py"), ("2.0", "linear/new.py")):
        wheel(tmp_path / "wheels", "linear_core", "", version=version, file=file)
        part = tmp_path / "part"
        with zipfile.ZipFile(tmp_path / "wheels" / f"linear_core-{version}-py3-none-any.whl") as packed:
            packed.extractall(part)
        take_in(part, folder)
    assert [p.name for p in folder.rglob("*.py")] == ["new.py"]
    assert [p.name for p in folder.glob("*.dist-info")] == ["linear_core-2.0.dist-info"]


@pytest.mark.parametrize(
    "name", ["torch", "triton==3.7.1", "numpy", "nvidia-cublas-cu12", "transformers>=5", "tokenizers"]
)
def test_what_decides_the_job_is_never_installed(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is never installed"):
        install([name], interpreter=sys.executable, run=tmp_path)
    assert not (tmp_path / "overlay").exists()


def test_faults_are_named(tmp_path: Path, interpreter: str) -> None:
    house = tmp_path / "wheels"
    wheel(house, "wantstorch", "", ("torch>=2",))
    wheel(house, "picky", "", ("pip<1",))
    wheel(house, "broken", "raise RuntimeError('needs a GPU\\nmore')\n")
    with pytest.raises(InputError, match=r"absent cannot be installed: .*absent"):
        install(["absent"], interpreter=interpreter, run=tmp_path, wheelhouse=house)
    with pytest.raises(InputError, match=r"lacks torch>=2, which only you can change"):
        install(["wantstorch"], interpreter=interpreter, run=tmp_path, wheelhouse=house)
    with pytest.raises(InputError, match=r"pip<1 cannot be installed"):
        install(["picky"], interpreter=interpreter, run=tmp_path, wheelhouse=house)
    with pytest.raises(InputError, match=r"does not import: broken: RuntimeError: needs a GPU"):
        install(["broken"], interpreter=interpreter, run=tmp_path, wheelhouse=house)
    with pytest.raises(InputError, match="does not answer"):
        install(["broken"], interpreter=str(tmp_path / "no-python"), run=tmp_path, wheelhouse=house)


def test_a_deadline_ends_a_build_that_hangs(tmp_path: Path, interpreter: str) -> None:
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "setup.py").write_text("import time\ntime.sleep(60)\n")
    with pytest.raises(InputError, match="not installed within the time limit"):
        install([str(slow)], interpreter=interpreter, run=tmp_path, deadline_s=3.0)


@pytest.mark.parametrize("files", [("linear", "linear/ops.py"), ("linear/ops.py", "linear")])
def test_a_file_where_another_package_has_a_folder(
    tmp_path: Path, interpreter: str, files: tuple[str, str]
) -> None:
    house = tmp_path / "wheels"
    wheel(house, "linear_layers", "", ("linear_core",), file=files[0])
    wheel(house, "linear_core", "", file=files[1])
    with pytest.raises(InputError, match=r"linear_core cannot be installed: linear is a .* another package"):
        install(["linear_layers"], interpreter=interpreter, run=tmp_path, wheelhouse=house)


def test_a_file_of_two_packages_stays_with_the_other_one(tmp_path: Path) -> None:
    folder, house = tmp_path / "overlay", tmp_path / "wheels"
    folder.mkdir()
    wheel(house, "linear_core", "", version="1.0", file="linear/__init__.py")
    wheel(house, "linear_layers", "", version="1.0", file="linear/__init__.py")
    wheel(house, "linear_layers", "", version="2.0", file="layers.py")
    for name in ("linear_core-1.0", "linear_layers-1.0", "linear_layers-2.0"):
        with zipfile.ZipFile(house / f"{name}-py3-none-any.whl") as packed:
            packed.extractall(tmp_path / "part")
        take_in(tmp_path / "part", folder)
    assert sorted(p.name for p in folder.rglob("*.py")) == ["__init__.py", "layers.py"]


@pytest.mark.parametrize(
    "source",
    [
        "import atexit\natexit.register(print, 'bye')\n",
        "import sys\nsys.stdout.close()\n",
        "import os\nos.write(1, b'\\xff no text')\n",
    ],
    ids=["says goodbye", "closes stdout", "bytes"],
)
def test_a_package_may_print_what_it_likes(tmp_path: Path, interpreter: str, source: str) -> None:
    wheel(tmp_path / "wheels", "loud", source)
    overlay = install(["loud"], interpreter=interpreter, run=tmp_path, wheelhouse=tmp_path / "wheels")
    assert [p.name for p in overlay.packages] == ["loud"]


def test_faults_of_odd_packages_are_named(tmp_path: Path, interpreter: str) -> None:
    house = tmp_path / "wheels"
    wheel(house, "leaves", "import os\nos._exit(0)\n")
    wheel(house, "needs", "", ("foo (>=1.0",))
    wheel(house, "damaged", "Z" * 500)
    path = house / "damaged-1.0-py3-none-any.whl"
    path.write_bytes(path.read_bytes().replace(b"ZZZZ", b"ZZAZ", 1))
    for name, words in (
        ("leaves", "does not import: it left without an answer"),
        ("needs", r"cannot be read: needs needs 'foo \(>=1\.0'"),
        ("damaged", "cannot be installed: zipfile.BadZipFile: Bad CRC-32"),
    ):
        with pytest.raises(InputError, match=words):
            install([name], interpreter=interpreter, run=tmp_path, wheelhouse=house)


def test_where_the_user_lets_pip_install_does_not_matter(
    tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path / "wheels", "quick", "")
    for name, value in (("USER", "1"), ("PREFIX", str(tmp_path / "prefix")), ("REQUIRE_VIRTUALENV", "1")):
        monkeypatch.setenv(f"PIP_{name}", value)
    overlay = install(["quick"], interpreter=interpreter, run=tmp_path, wheelhouse=tmp_path / "wheels")
    assert [p.name for p in overlay.packages] == ["quick"] and not (tmp_path / "prefix").exists()


def test_an_environment_without_pip_and_with_odd_packages(tmp_path: Path) -> None:
    house = tmp_path / "wheels"
    wheel(house, "fast", "import deep\nassert deep.NEW\n", ("deep>=2", "odd>=1"))
    wheel(house, "deep", "NEW = True\n", version="2.0")
    wheel(house, "odd", "")
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (site,) = (tmp_path / "venv").glob("lib/*/site-packages")
    (site / "~eep-1.0.dist-info").mkdir()
    for name, version in (("deep", "1.0"), ("odd", "of its own")):
        (site / f"{name}-1.dist-info").mkdir()
        (site / f"{name}-1.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (site / "deep.py").write_text("NEW = False\n")
    python = str(tmp_path / "venv" / "bin" / "python")
    overlay = install(["fast"], interpreter=python, run=tmp_path, wheelhouse=house)
    assert [(p.name, p.version) for p in overlay.packages] == [
        ("deep", "2.0"),
        ("fast", "1.0"),
        ("odd", "1.0"),
    ]
    assert environment_packages(python) == {"deep": "1.0", "odd": "of its own"}
    with pytest.raises(InputError, match="fast cannot be installed: pip installed nothing"):
        install(["fast"], interpreter="/bin/true", run=tmp_path, wheelhouse=house)


def test_a_killed_installation_takes_its_build_with_it(tmp_path: Path, interpreter: str) -> None:
    slow, note = tmp_path / "slow", tmp_path / "pid"
    slow.mkdir()
    said = f"import os, pathlib, time\npathlib.Path({str(note)!r}).write_text(f'{{os.getpid()}}.')\n"
    (slow / "setup.py").write_text(f"{said}time.sleep(120)\n")
    program = "import pathlib, sys\nfrom autotune.apply.packages import install\n"
    program += "install([sys.argv[1]], interpreter=sys.argv[2], run=pathlib.Path(sys.argv[3]))\n"
    with subprocess.Popen([sys.executable, "-c", program, str(slow), interpreter, str(tmp_path)]) as process:
        wait_for(lambda: note.exists() and note.read_text().endswith("."))
        process.kill()
    wait_for(lambda: not Path(f"/proc/{note.read_text().rstrip('.')}").exists())


def wait_for(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.parametrize("record", [None, "", '[{"name": "qui', "[1]", "null"])
def test_a_half_overlay_is_made_anew(tmp_path: Path, interpreter: str, record: str | None) -> None:
    wheel(tmp_path / "wheels", "quick", "")
    overlay = install(["quick"], interpreter=interpreter, run=tmp_path, wheelhouse=tmp_path / "wheels")
    (overlay.folder / "overlay.json").unlink()
    if record is not None:
        (overlay.folder / "overlay.json").write_text(record)
    (overlay.folder / "stale-1.0.dist-info").mkdir()
    overlay.folder.with_name(f"{overlay.folder.name}.part-1").mkdir()
    again = install(["quick"], interpreter=interpreter, run=tmp_path, wheelhouse=tmp_path / "wheels")
    assert again == overlay and not (overlay.folder / "stale-1.0.dist-info").exists()
    assert list(overlay.folder.parent.iterdir()) == [overlay.folder]
