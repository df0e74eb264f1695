"""The proof of fast paths: its references are right, all faults are told, the CPU's own path passes."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

from autotune.apply.fast_paths import prove, sizes_of
from autotune.cli.main import run
from autotune.data import data_dir
from autotune.errors import InputError

CONFIG = {
    "model_type": "qwen3_next", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "hidden_size": 64, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16,
    "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def checks() -> Any:
    path = data_dir("templates") / "checks" / "fast_paths.py"
    spec = importlib.util.spec_from_file_location("fast_paths", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sizes_come_from_the_configuration() -> None:
    assert sizes_of(CONFIG) == {
        "dtype": "bfloat16",
        "attention": {"heads": 4, "kv_heads": 2, "head_dim": 32},
        "gated_delta_rule": {"heads": 4, "key_dim": 16, "value_dim": 8},
        "causal_conv": {"channels": 96, "width": 4},
    }
    dense = {"num_attention_heads": 8, "hidden_size": 512}
    assert sizes_of({"text_config": dense}, "float16") == {
        "dtype": "float16",
        "attention": {"heads": 8, "kv_heads": 8, "head_dim": 64},
    }
    assert sizes_of({"model_type": "rwkv"}) == {"dtype": "bfloat16"}


def test_the_reference_of_the_delta_rule_is_that_of_transformers(checks: Any) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 40, 3, 16), torch.randn(1, 40, 3, 16), torch.randn(1, 40, 3, 8)
    g, beta = -torch.rand(1, 40, 3), torch.rand(1, 40, 3)
    mine = checks.one_by_one(q[0], k[0], v[0], g[0], beta[0])
    theirs, _ = torch_chunk_gated_delta_rule(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)
    torch.testing.assert_close(mine, theirs[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_faults_of_every_kind_are_told(checks: Any, dtype: torch.dtype) -> None:
    """Roads beside the real ones: right, forgetting boundaries, with a wrong and with a raising backward."""

    class WrongBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 1.05

    class NoBackward(WrongBackward):
        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no kernel for this GPU")

    def right(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.cat([part.cumsum(0) for part in (x * w).split(checks.LENGTHS)])

    inputs = [torch.randn(sum(checks.LENGTHS), 8), torch.rand(8)]
    roads = {
        "right": (right, ""),
        "leaks": (lambda x, w: (x * w).cumsum(0), ""),
        "wrong backward": (lambda x, w: right(WrongBackward.apply(x), w), ""),
        "raising backward": (lambda x, w: right(NoBackward.apply(x), w), ""),
        "not a number": (lambda x, w: right(x, w) / 0, ""),
        "gradient lost": (lambda x, w: right(x, w.detach()), ""),
        "absent": (None, "not installed"),
        "broken": (None, "ImportError: undefined symbol"),
    }
    found = {a["by"]: a for a in checks.judge("sum", roads, inputs, dtype, right, right)}
    assert {by: a["state"] for by, a in found.items()} == {
        "right": "live", "leaks": "wrong", "wrong backward": "wrong", "raising backward": "failed",
        "not a number": "wrong", "gradient lost": "wrong", "absent": "absent", "broken": "failed",
    }  # fmt: skip
    assert "no kernel for this GPU" in found["raising backward"]["detail"]
    assert "gradient 0" in found["wrong backward"]["detail"]


def test_packages_that_are_broken_are_not_absent(checks: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "broken_kernels.py").write_text("import a_missing_part_of_it\n")
    (tmp_path / "empty_kernels.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert checks.found("never_there", "f") == (None, "not installed")
    assert "a_missing_part_of_it" in checks.found("broken_kernels", "f")[1]
    assert "AttributeError" in checks.found("empty_kernels", "f")[1]


@pytest.mark.job
def test_this_machine_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    words = ["doctor", "--runs-dir", str(tmp_path), "--fast-paths", str(tmp_path / "config.json"), "--json"]
    (tmp_path / "train.py").write_text("")
    assert run([*words, "--", sys.executable, str(tmp_path / "train.py")]) == 0
    found = {c["name"]: c["state"] for c in json.loads(capsys.readouterr().out)["checks"]}
    assert found["attention by torch, one call an example"] == "ok"
    assert {"causal_conv by causal-conv1d", "gated_delta_rule by flash-linear-attention"} <= set(found)


def test_an_interpreter_without_torch_says_so(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'ModuleNotFoundError: no torch' >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(InputError, match="no torch"):
        prove(str(fake), {})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_what_is_installed_is_live_on_the_gpu(head_dim: int) -> None:
    sizes = sizes_of(
        {**CONFIG, "head_dim": head_dim, "linear_key_head_dim": 128, "linear_value_head_dim": 128}
    )
    found = {c.name: c for c in prove(sys.executable, sizes)}
    bad = [c for c in found.values() if c.state == "warning"]
    assert bad == []
    assert found["attention by torch varlen_attn"].state == "ok"
