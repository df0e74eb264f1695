"""The GPU roads of the shims against plain torch, forward and backward."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from shim_modules import load_shim
from test_packed_shims import examples, pad, tiny

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
MODELING = """
import torch

def causal_conv1d_fn(x, w, b=None, activation=None, **k):
    return x

class Layer(torch.nn.Module):
    def forward(self, x):
        return causal_conv1d_fn(x, None)
"""
LENGTHS = [300, 17, 64, 129, 1]


@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(8, 2, 64), (4, 1, 256), (6, 6, 128)])
@pytest.mark.parametrize("window", [None, 100])
def test_variable_length_kernel_equals_one_call_per_example(
    heads: int, kv_heads: int, size: int, window: int | None
) -> None:
    attention = load_shim("packed_attention")
    torch.manual_seed(0)
    total = sum(LENGTHS)
    cu = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0).tolist()], dtype=torch.int32, device="cuda")
    shapes = [(1, heads, total, size), (1, kv_heads, total, size), (1, kv_heads, total, size)]
    inputs = [torch.randn(s, device="cuda", dtype=torch.bfloat16, requires_grad=True) for s in shapes]
    weight = torch.randn(total, heads, size, device="cuda")

    def outputs(run: Any, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        out = run(*tensors, cu, size**-0.5, window)
        return [out, *torch.autograd.grad((out.float() * weight).sum(), tensors)]

    exact = outputs(attention.per_example, [t.detach().double().requires_grad_() for t in inputs])
    plain = outputs(attention.per_example, inputs)
    fast = outputs(attention.torch_varlen, inputs)
    for reference, slow, quick in zip(exact, plain, fast, strict=True):
        error, noise = (quick.double() - reference).norm(), (slow.double() - reference).norm()
        assert error <= 1.5 * noise, "no further from exact numbers than torch's own bf16 attention"


def test_a_packed_step_runs_without_waiting_and_gives_the_padded_loss() -> None:
    attention = load_shim("packed_attention")
    batches = load_shim("packed_batches")
    model = tiny("llama").to("cuda", torch.bfloat16)
    rows = examples((70, 30, 128, 50))
    padded = {k: v.cuda() for k, v in pad(rows).items()}
    before = model(**padded).loss
    batches.attend_per_example(model)
    packed = {k: v.cuda() for k, v in batches.flatten(pad)(rows).items()}
    model(**packed).loss.backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        after = model(**packed).loss
        after.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert attention.now["lengths"] is None, "the variable-length kernel ran"
    assert abs(after.item() - before.item()) < 5e-3


@pytest.mark.parametrize("packed", ["cu_seq_lens_q", "seq_idx", None])
def test_fused_convolution_equals_torch(packed: str | None) -> None:
    pytest.importorskip("fla")
    conv = load_shim("causal_conv")
    torch.manual_seed(0)
    channels, width, total = 96, 4, sum(LENGTHS)
    inputs = [
        torch.randn(1, total, channels, device="cuda").transpose(1, 2).requires_grad_(),
        torch.randn(channels, width, device="cuda", requires_grad=True),
        torch.randn(channels, device="cuda", requires_grad=True),
    ]
    cu = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0).tolist()], dtype=torch.int32, device="cuda")
    index = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS)).to("cuda", torch.int32)
    both: dict[str | None, dict[str, Any]] = {
        "cu_seq_lens_q": {"cu_seq_lens_q": cu},
        "seq_idx": {"seq_idx": index[None]},
        None: {},
    }
    kwargs = both[packed]

    def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, **_: Any) -> torch.Tensor:
        parts = x.split(LENGTHS, dim=2) if packed else [x]
        made = [
            F.conv1d(p, weight[:, None], bias, padding=width - 1, groups=channels)[..., : p.shape[2]]
            for p in parts
        ]
        return F.silu(torch.cat(made, dim=2))

    def outputs(run: Any) -> list[torch.Tensor]:
        out = run(*inputs, activation="silu", **kwargs)
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    fast = conv.fused(reference, conv.find())
    for one, other in zip(outputs(fast), outputs(reference), strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-3)


def test_the_convolution_is_replaced_where_the_layers_look_it_up() -> None:
    pytest.importorskip("fla")
    conv = load_shim("causal_conv")
    module = types.ModuleType("modeling_small")
    exec(MODELING, module.__dict__)
    sys.modules["modeling_small"] = module
    layer = module.Layer()
    assert conv.use_fused(layer) is layer
    assert module.causal_conv1d_fn.autotune_old.__name__ == "causal_conv1d_fn"
    x = torch.randn(1, 3, 5)
    assert torch.equal(layer(x), x), "tensors of the CPU take the old road"
    with pytest.raises(ValueError, match="calls causal_conv1d_fn by name"):
        conv.use_fused(torch.nn.Linear(2, 2))
