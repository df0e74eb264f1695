"""How versions of transformers bind fused kernels: fast is told from slow, under the kernel's name."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from probe_parts import part

ROOT = Path(__file__).resolve().parents[2]
DELTA, CONV, SCAN = "chunk_gated_delta_rule", "causal_conv1d_fn", "selective_scan_fn"


def kernel(*args: Any, **kwargs: Any) -> None:
    """Stands for a function of a kernel package."""


def reference(name: str, home: str) -> Callable[..., None]:
    def function(*args: Any, **kwargs: Any) -> None:
        pass

    function.__name__, function.__module__ = name, f"transformers.models.{home}"
    return function


def wrapped(own: Callable[..., None], implementation: Callable[..., None], name: str | None) -> Any:
    """A binding in a closure: without the kernel's name (5.15, 5.16), with it (5.17)."""
    allowed = tuple(inspect.signature(implementation).parameters)

    if name is None:

        @functools.wraps(own)
        def nameless(*args: Any, **kwargs: Any) -> Any:
            return implementation(*args, **{k: v for k, v in kwargs.items() if k in allowed})

        return nameless
    func_name, torch_function = name, own

    @functools.wraps(own)
    def named(*args: Any, **kwargs: Any) -> Any:
        assert implementation is not torch_function, func_name
        return implementation(*args, **{k: v for k, v in kwargs.items() if k in allowed})

    return named


def modeling(name: str, forward: str, **names: Any) -> Any:
    """A model of one layer whose file holds these names."""
    module = ModuleType(name)
    module.__dict__.update(names, torch=torch)
    source = f"class Layer(torch.nn.Module):\n    def forward(self, x):\n        {forward}\n"
    exec(source, module.__dict__)
    sys.modules[name] = module
    return module.__dict__["Layer"]()


def seen(model: Any) -> dict[str, bool]:
    return {entry["name"]: entry["fast"] for entry in part("kernel_facts").collect(model)}


@pytest.mark.parametrize("name", [None, DELTA])
@pytest.mark.parametrize("fast", [False, True])
def test_a_closure(name: str | None, fast: bool) -> None:
    own = reference("torch_chunk_gated_delta_rule", "a")
    value = wrapped(own, kernel if fast else own, name)
    assert seen(modeling("bound_in_a_closure", "return x", torch_chunk_gated_delta_rule=value)) == {
        DELTA: fast
    }


def test_plain_references_of_old_files_are_no_kernels() -> None:
    own = reference("torch_chunk_gated_delta_rule", "a")
    model = modeling(
        "bound_by_name", "return x", torch_chunk_gated_delta_rule=own, chunk_gated_delta_rule=None
    )
    assert seen(model) == {DELTA: False}
    (entry,) = part("kernel_facts").collect(model)
    assert entry["reason"] == "absent" and entry["package"] == "flash-linear-attention"


def test_layers_that_only_warn_take_each_kernel_that_is_there() -> None:
    names = {DELTA: kernel, CONV: None, "is_fast_path_available": False}
    assert seen(modeling("bound_each", "return x", **names)) == {DELTA: True, CONV: False}


def test_layers_that_ask_take_all_or_none() -> None:
    ask = "return is_fast_path_available"
    names = {SCAN: kernel, CONV: kernel}
    assert seen(modeling("all", ask, **names, is_fast_path_available=True)) == {SCAN: True, CONV: True}
    assert seen(modeling("none", ask, **names, is_fast_path_available=False)) == {SCAN: False, CONV: False}


def test_layers_that_work_it_out_themselves() -> None:
    ask = f"is_fast_path_available = all(({SCAN}, {CONV})); return is_fast_path_available"
    assert seen(modeling("both", ask, **{SCAN: kernel, CONV: kernel})) == {SCAN: True, CONV: True}
    assert seen(modeling("one", ask, **{SCAN: kernel, CONV: None})) == {SCAN: False, CONV: False}


@pytest.mark.parametrize("found", [kernel, None])
def test_convolutions_that_are_loaded_late(found: Any) -> None:
    ask = f"{CONV} = found(); is_fast_path_available = all(({SCAN}, {CONV})); return is_fast_path_available"
    model = modeling("late", ask, **{SCAN: kernel}, _causal_conv1d_cache=(found, found))
    fast = found is not None
    assert seen(model) == {SCAN: fast, CONV: fast, "causal_conv1d_update": fast}


@pytest.fixture(scope="module")
def bench() -> Any:
    sys.path.insert(0, str(ROOT / "bench"))
    spec = importlib.util.spec_from_file_location("kernel_versions", ROOT / "bench" / "kernel_versions.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(ROOT / "bench"))


# a class of fla that is not stood in for; two faults of old versions with a configuration as small as ours
NOT_RUN = ("ShortConvolution", "Zamba2Model", "get_current_dtype")


def check(bench: Any, version: str, seen: dict[str, Any]) -> int:
    """The probe calls every kernel fast, and the isolation table says what is measured with stand-ins."""
    from autotune.facts.packing import packing_verdict

    compared = 0
    for family, found in seen.items():
        if not isinstance(found, dict):  # not in this version, or its layers want more than is stood in for
            assert found.startswith("KeyError") or any(name in found for name in NOT_RUN), found
            continue
        if (version, family) not in NOT_RESOLVED:
            assert found["kernels"] and all(found["kernels"].values()), (family, found)
        for level, measured in found["verdicts"].items():
            passed = ("position_ids", *bench.levels()[level])
            told = packing_verdict(family, "fast", passed, "sdpa", 1, False, False, version)
            undecided = level == "all_plus_cu_seqlens" and told == "unknown"
            assert told == measured or undecided, (family, level, told)
            compared += 1
    return compared


# transformers 5.0 looks for a function where mamba-ssm does not have it, and so takes no kernel
NOT_RESOLVED = {("5.0.0", "bamba"), ("5.0.0", "granitemoehybrid"), ("5.0.0", "mamba2")}


def test_the_installed_version(bench: Any, tmp_path: Path) -> None:
    version = bench.installed("transformers")
    found = bench.run(tmp_path, version, "stand-ins", ("qwen3_5_text", "lfm2", "nemotron_h"))
    assert check(bench, version, found["families"]) >= 12


def packs(found: dict[str, Any]) -> None:
    assert found["attention"] == "autotune_packed" and found["leak"] == 0.0
    assert found["loss_change"] < 1e-5 and found["gradient_change"] < 1e-5


def test_the_modules_of_a_packing_patch_use_the_kernels(bench: Any, tmp_path: Path) -> None:
    version = bench.installed("transformers")
    packs(bench.run(tmp_path, version, "shims", ("qwen3_5_text",))["families"]["qwen3_5_text"])


@pytest.mark.full
@pytest.mark.parametrize("version", ["4.57.6", "5.0.0", "5.10.1", "5.15.0", "5.16.1"])
def test_other_versions(bench: Any, tmp_path: Path, version: str) -> None:
    try:
        bench.put(tmp_path, version)
    except bench.subprocess.CalledProcessError:
        pytest.skip("no package index")
    bare = bench.run(tmp_path, version, "bare")["families"]
    named = {k: v for k, v in bare.items() if isinstance(v, dict)}
    assert {"lfm2", "mamba", "mamba2", "bamba"} <= set(named)
    assert all(v["kernels"] and not any(v["kernels"].values()) for v in named.values()), named
    compared = check(bench, version, bench.run(tmp_path, version, "stand-ins")["families"])
    assert compared >= (40 if version in ("5.15.0", "5.16.1") else 0)
    if version == "5.16.1":
        packed = bench.run(tmp_path, version, "shims")["families"]
        for family in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid", "lfm2", "bamba"):
            packs(packed[family])
        assert packed["nemotron_h"]["leak"] > 1e-3  # as the table says: seq_idx does not arrive
