"""The wheel and the sdist build equal twice over, and the wheel alone gives a working command line."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "tests" / "traces" / "h100_1gpu_qwen1.5-0.5b_infer_scrubbed.json.gz"
pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


def _build(source: Path, out: Path) -> dict[str, str]:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1764547200"}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's files, with a run beside them that links to the whole machine, as runs do."""
    copy = tmp_path_factory.mktemp("source") / "autotune"
    skipped = shutil.ignore_patterns(".git", ".*_cache", ".hypothesis", ".venv", "__pycache__", "runs")
    shutil.copytree(ROOT, copy, ignore=skipped)
    tree = copy / "runs" / "at-20260101-000000-job" / "patched" / "tree"
    tree.mkdir(parents=True)
    (tree / "here").symlink_to(copy)
    return copy


@pytest.fixture(scope="module")
def dist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    _build(source, out)
    return out


def test_two_builds_are_equal(source: Path, dist: Path, tmp_path: Path) -> None:
    first = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(dist.iterdir())}
    assert len(first) == 2
    assert _build(source, tmp_path) == first


def test_what_lies_in_them(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for folder in ("rules", "templates"):
        shipped = {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*") if p.is_file()}
        shipped = {name for name in shipped if "__pycache__" not in name}
        assert shipped <= {name.removeprefix("autotune/_data/") for name in names}
    assert not [name for name in names if name.startswith(("tests/", "docs/", "runs/", "bench/"))]
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "mkdocs.yml"} <= inside
    assert not [name for name in inside if name.startswith("runs/at-")]


def test_the_wheel_in_an_empty_environment_works(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    programs = tmp_path / "env" / "bin"
    pip = [
        str(programs / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        str(wheel),
    ]
    subprocess.run(pip, check=True, capture_output=True, text=True, timeout=600)
    listed = subprocess.run(
        [programs / "python", "-m", "pip", "list", "--format=freeze"],
        capture_output=True,
        text=True,
        check=True,
    )
    installed = {line.split("==")[0].lower() for line in listed.stdout.splitlines()}
    assert not installed & {"torch", "transformers", "pandas", "plotly", "mcp"}

    def autotune(*arguments: str) -> str:
        done = subprocess.run(
            [programs / "autotune", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert autotune("--version").startswith("autotune, version ")
    assert "attention/eager" in autotune("rules", "list")
    assert " 0 errors" in autotune("rules", "lint")
    assert "Findings" in autotune("analyze", "--trace", str(TRACE)) or "Nothing to do" in autotune("report")
    assert "fsdp2" in autotune("apply", "--help")
    code = (
        "from autotune.data import data_dir, probe_dir; from autotune import Run;"
        "assert (data_dir('templates') / 'shims').is_dir(); assert (probe_dir() / 'boot.py').is_file();"
        f"print(Run.latest({str(tmp_path / 'runs')!r}).verdict)"
    )
    done = subprocess.run([programs / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr
