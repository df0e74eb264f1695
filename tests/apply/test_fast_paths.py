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
    bamba = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": 50, "rms_norm_eps": 1e-5}
    bamba |= {
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_n_groups": 2,
        "mamba_d_state": 32,
        "mamba_d_conv": 3,
    }
    assert sizes_of(bamba) == {
        "dtype": "bfloat16",
        "state_space": {"heads": 8, "head_dim": 16, "groups": 2, "state": 32},
        "causal_conv": {"channels": 8 * 16 + 2 * 2 * 32, "width": 3},
        "fused_layers": {"hidden": 64, "intermediate": 96, "eps": 1e-5},
        "loss_head": {"hidden": 64, "vocabulary": 50},
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


def test_the_reference_of_the_state_space_scan_is_that_of_transformers(checks: Any) -> None:
    from layer_paths import scan_one_by_one  # type: ignore[import-not-found]
    from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan

    torch.manual_seed(0)
    x, dt = torch.randn(1, 40, 4, 8), torch.randn(1, 40, 4)
    b, c = torch.randn(1, 40, 2, 16), torch.randn(1, 40, 2, 16)
    decay = -torch.rand(4) - 0.5
    mine = scan_one_by_one(x[0], dt[0], b[0], c[0], decay)
    theirs = mamba2_chunk_scan(x, dt, decay, b, c, chunk_size=16, dt_softplus=True)
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    torch.testing.assert_close(mine, theirs[0], rtol=1e-4, atol=1e-5)


def test_every_part_answers_without_a_gpu(checks: Any) -> None:
    """What is not installed, or not for this machine, is told for each way there is."""
    sizes = {"state_space": {"heads": 4, "head_dim": 8, "groups": 2, "state": 16}}
    sizes["fused_layers"] = {"hidden": 32, "intermediate": 48, "eps": 1e-6}
    sizes["loss_head"] = {"hidden": 32, "vocabulary": 10**9}  # nothing of this size is made
    made = [
        answer
        for name, size in sizes.items()
        for answer in checks.CHECKS[name](name, size, torch.device("cpu"), torch.bfloat16)
    ]
    assert {(a["path"], a["by"]) for a in made} == {
        ("state_space", "mamba-ssm"), ("fused_layers, RMSNorm", "liger-kernel"),
        ("fused_layers, RMSNorm of 1 + weight", "liger-kernel"), ("fused_layers, SwiGLU", "liger-kernel"),
        ("loss_head", "liger-kernel"),
    }  # fmt: skip
    assert {a["state"] for a in made} <= {"absent", "not here"}


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
    assert "attention by flash-attn 4" in found


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
    sizes["state_space"] = {"heads": 16, "head_dim": 64, "groups": 2, "state": 128}
    sizes["fused_layers"] = {"hidden": 2048, "intermediate": 6144, "eps": 1e-6}
    sizes["loss_head"] = {"hidden": 2048, "vocabulary": 32000}
    found = {c.name: c for c in prove(sys.executable, sizes)}
    bad = [c for c in found.values() if c.state == "warning"]
    assert bad == []
    assert found["attention by torch varlen_attn"].state == "ok"
