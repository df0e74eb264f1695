"""What installing autotune brings along: few direct dependencies, no training framework, named extras."""

from __future__ import annotations

import re
from pathlib import Path

import tomlkit

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomlkit.parse((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FRAMEWORKS = {"torch", "transformers", "accelerate", "trl", "datasets", "tensorflow", "jax", "triton"}


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\s<>=!~;\[]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


def test_few_direct_dependencies_and_no_framework() -> None:
    names = _names(PROJECT["dependencies"])
    assert len(names) <= 12
    assert not names & FRAMEWORKS


def test_the_promised_extras_exist() -> None:
    extras = PROJECT["optional-dependencies"]
    assert {"train", "kernels", "report", "mcp", "mlflow", "wandb"} <= set(extras)
    assert _names(extras["train"]) >= {"torch", "transformers"}
    assert _names(extras["mcp"]) == {"mcp"}
