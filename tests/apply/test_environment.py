"""The packages of a run as files: what was watched, what a proven change adds, what has to be compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from findings_made import observation
from packaging.requirements import Requirement

from autotune.apply.environment import environment_files
from autotune.errors import InputError
from autotune.records.observation import EnvironmentRecord, Observation
from autotune.records.plan import InstalledPackage, PatchedJob


def watched(**packages: str) -> Observation:
    seen = observation(["python", "train.py"], Path("/work"))
    environment = EnvironmentRecord(
        python="3.12.4",
        torch="2.11.0+cu130",
        cuda="13.0",
        device_name="NVIDIA H200",
        packages={name.replace("_", "-"): version for name, version in packages.items()},
    )
    rank = seen.ranks[0].model_copy(update={"environment": environment})
    return seen.model_copy(update={"ranks": [rank]})


def patched(env: dict[str, Any] | None = None, **packages: str) -> PatchedJob:
    return PatchedJob(
        label="kept", groups=[], rules=[], command=["python"], cwd="/", tree="/", original_cwd="/",
        original_command=["python"], env=env or {},
        packages=[InstalledPackage(name=n.replace("_", "-"), version=v) for n, v in packages.items()],
    )  # fmt: skip


SEEN = {"torch": "2.11.0+cu130", "transformers": "5.17.0", "nvidia_nccl_cu13": "2.27", "triton": "3.6.0"}


def requirements(text: str) -> dict[str, str]:
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return {r.name: str(r.specifier) for r in map(Requirement, filter(None, lines))}


def test_the_watched_set_is_pinned_without_what_the_driver_brings() -> None:
    files = environment_files(watched(**SEEN), None, run="at-1")
    assert set(files) == {"requirements.txt", "Dockerfile"}
    text = files["requirements.txt"]
    assert requirements(text) == {"torch": "==2.11.0", "transformers": "==5.17.0", "triton": "==3.6.0"}
    assert "without any change" in text and "cu130" in text and "CUDA 13.0, NVIDIA H200" in text
    assert "ARG BASE=python:3.12\n" in files["Dockerfile"] and "build.sh" not in files["Dockerfile"]


def test_a_proven_change_adds_wheels_and_source_builds_with_flags_and_deadline() -> None:
    job = patched(
        {"FLA_TILELANG": "1", "GONE": None, "PYTHONPATH": "/somewhere"},
        fla_core="0.6.0", flash_linear_attention="0.6.0", causal_conv1d="1.7.0",
    )  # fmt: skip
    files = environment_files(watched(**SEEN, flash_attn="2.8.3"), job, run="at-1")
    assert requirements(files["requirements.txt"]) == {
        "torch": "==2.11.0", "transformers": "==5.17.0", "triton": "==3.6.0",
        "fla-core": "==0.6.0", "flash-linear-attention": "==0.6.0",
    }  # fmt: skip
    assert "proven" in files["requirements.txt"]
    build = files["build.sh"]
    assert (
        "CAUSAL_CONV1D_FORCE_BUILD=TRUE timeout 30m python -m pip install --no-deps --no-build-isolation "
        "causal-conv1d==1.7.0\n" in build
    )
    assert "FLASH_ATTENTION_FORCE_BUILD=TRUE timeout 180m" in build and "about 7 minutes" in build
    docker = files["Dockerfile"]
    assert "RUN sh /tmp/environment/build.sh" in docker and "nvcc of CUDA 13.0" in docker
    assert "ENV FLA_TILELANG=1\n" in docker and "GONE" not in docker and "PYTHONPATH" not in docker


def test_shell_reads_the_build_file(tmp_path: Path) -> None:
    import subprocess

    files = environment_files(watched(**SEEN), patched(causal_conv1d="1.7.0"), run="at-1")
    (tmp_path / "build.sh").write_text(files["build.sh"])
    assert subprocess.run(["sh", "-n", str(tmp_path / "build.sh")], check=False).returncode == 0


def test_a_run_that_did_not_look_says_so() -> None:
    with pytest.raises(InputError, match="did not record"):
        environment_files(watched(), None, run="at-1")
