"""The environment plan says what fits, why not, and the exact command."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from autotune.facts.recipes import Environment, build_variables, environment_plan, pins_for

H200 = {"torch": "2.11.0+cu130", "triton": "3.6.0", "transformers": "5.17.0"}
TOOLS = frozenset({"nvcc"})


def state(name: str, environment: Environment) -> tuple[str, str]:
    advice = environment_plan(environment, [name])[0]
    return advice.state, advice.reason


def test_hopper_with_triton_36_needs_tilelang_for_the_backward() -> None:
    hopper = Environment(H200, 9.0, TOOLS)
    plan = environment_plan(hopper, ["flash-linear-attention"])
    assert [a.package for a in plan] == ["flash-linear-attention", "tilelang"]
    assert plan[0].command == "python -m pip install --no-deps fla-core==0.6.0 flash-linear-attention==0.6.0"
    assert "backward" in plan[1].reason
    assert "tilelang==0.1.15" in pins_for("flash-linear-attention", hopper)
    for other in (
        Environment({**H200, "triton": "3.7.1"}, 9.0, TOOLS),
        Environment(H200, 8.0, TOOLS),
        Environment({**H200, "tilelang": "0.1.15"}, 9.0, TOOLS),
        Environment(H200, None, TOOLS),
    ):
        assert "tilelang==0.1.15" not in pins_for("flash-linear-attention", other)


def test_what_does_not_fit_says_why() -> None:
    old = Environment({**H200, "torch": "2.6.0"}, 9.0, TOOLS)
    assert state("flash-linear-attention", old) == ("does not fit", "needs torch >=2.7, there is 2.6.0")
    older = Environment({**H200, "transformers": "4.57.6"}, 9.0, TOOLS)  # its import fails there
    assert state("flash-linear-attention", older)[1] == "needs transformers >=5.6.2, there is 4.57.6"
    founding = Environment({**H200, "transformers": "5.16.1"}, 9.0, TOOLS)
    assert state("flash-linear-attention", founding)[0] == "fits"
    assert state("liger-kernel", Environment({"torch": "2.11"}, 9.0)) == (
        "does not fit",
        "needs triton >=2.3, which is not installed",
    )
    assert state("causal-conv1d", Environment(H200, 9.0))[0] == "unknown"
    assert state("causal-conv1d", Environment(H200, None, TOOLS)) == ("unknown", "no NVIDIA GPU was seen")
    assert state("flash-attn", Environment(H200, 7.5, TOOLS))[0] == "does not fit"
    assert state("causal-conv1d", Environment({**H200, "causal-conv1d": "1.7.0"}, 9.0)) == (
        "installed",
        "1.7.0",
    )
    assert state("nonesuch", Environment(H200, 9.0))[0] == "unknown"


def test_source_builds_name_their_time_flags_and_the_other_way() -> None:
    advice = environment_plan(Environment(H200, 9.0, TOOLS), ["causal-conv1d"])[0]
    assert advice.state == "fits" and "about 7 minutes" in advice.build and "shim" in advice.instead
    assert advice.command == (
        "CAUSAL_CONV1D_FORCE_BUILD=TRUE "
        "python -m pip install --no-deps --no-build-isolation causal-conv1d==1.7.0"
    )
    assert build_variables("causal-conv1d==1.7.0") == {"CAUSAL_CONV1D_FORCE_BUILD": "TRUE"}
    assert build_variables("fla-core") == {}


@pytest.mark.parametrize(
    ("transformers", "window"),
    [("5.17.0", "'kernels>=0.16.0,<0.17.0'"), ("5.24.0", "'kernels>=0.18.2,<0.19.0'"), ("6.1", "kernels")],
)
def test_kernels_keep_the_window_of_transformers(transformers: str, window: str) -> None:
    environment = Environment({**H200, "transformers": transformers}, 9.0)
    assert environment_plan(environment, ["kernels"])[0].command.endswith(f" {window}")


def test_the_table_is_complete() -> None:
    table = Path(__file__).resolve().parents[2] / "rules" / "_tables" / "package_recipes.yaml"
    for name, recipe in yaml.safe_load(table.read_text())["packages"].items():
        assert recipe["artefact"] in ("wheel", "source") and recipe["source"], name
        assert not any(pin.split("=")[0] in ("torch", "triton", "numpy") for pin in recipe["pins"]), name
    assert {a.package for a in environment_plan(Environment({}))} >= {
        "flash-linear-attention",
        "liger-kernel",
    }


def test_every_version_window_says_where_it_comes_from() -> None:
    table = Path(__file__).resolve().parents[2] / "rules" / "_tables" / "version_windows.yaml"
    windows = yaml.safe_load(table.read_text())["windows"]
    assert len(windows) >= 8
    assert [row["package"] for row in windows if not row.get("source")] == []


def test_long_builds_have_a_deadline_of_their_own() -> None:
    from autotune.facts.recipes import built_from_source

    conv, flash = built_from_source("causal-conv1d==1.7.0"), built_from_source("Flash_Attn")
    assert conv is not None and flash is not None
    assert (conv.deadline_minutes, flash.deadline_minutes) == (30, 180)
    assert built_from_source("flash-linear-attention") is None and built_from_source("nonesuch") is None
