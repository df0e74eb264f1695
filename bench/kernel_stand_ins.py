"""Stand-ins for fla, causal_conv1d and mamba_ssm in plain torch, with the arguments of the real functions.

install() puts them where `import fla` finds them, before a modeling file of transformers is imported. They
keep packed examples apart exactly where the real kernels are told to: by cu_seqlens (fla) and by seq_idx
(causal_conv1d, mamba_ssm). So a leak that is measured with them is one of what transformers passes on; they
say nothing about the kernels themselves, nor about speed. Arguments as in flash-linear-attention 0.6 and
causal-conv1d 1.7, whose sources were read, and in mamba-ssm 2.3.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections import Counter
from typing import Any

import torch
import torch.nn.functional as F

# how often each function was called: a layer that never reaches them was not measured with them
calls: Counter[str] = Counter()
_AVAILABLE = (
    "is_flash_linear_attention_available", "is_causal_conv1d_available", "is_mamba_ssm_available",
    "is_mamba_2_ssm_available",
)  # fmt: skip


def install() -> None:
    """Make the three packages importable; transformers before 5.15 is told that they fit this machine."""
    delta = _module("fla.ops.gated_delta_rule", chunk_gated_delta_rule, fused_recurrent_gated_delta_rule)
    kda = _module("fla.ops.kda", chunk_kda, fused_recurrent_kda)
    modules = _module("fla.modules", FusedRMSNormGated)
    ops = _module("fla.ops", gated_delta_rule=delta, kda=kda)
    _module("fla", ops=ops, modules=modules, __version__="0.6.0")
    _module("causal_conv1d", causal_conv1d_fn, causal_conv1d_update, __version__="1.7.0")
    combined = _module(
        "mamba_ssm.ops.triton.ssd_combined", mamba_chunk_scan_combined, mamba_split_conv1d_scan_combined
    )
    update = _module("mamba_ssm.ops.triton.selective_state_update", selective_state_update)
    triton = _module("mamba_ssm.ops.triton", ssd_combined=combined, selective_state_update=update)
    _module("mamba_ssm", ops=_module("mamba_ssm.ops", triton=triton), __version__="2.3.2")
    from transformers import utils
    from transformers.utils import import_utils

    for name in _AVAILABLE:
        for home in (utils, import_utils):
            if hasattr(home, name):
                setattr(home, name, _yes)
    if not torch.cuda.is_available():
        torch.cuda.current_device = _cpu  # where the Qwen families before 5.11 put the norm from fla


def _cpu() -> str:
    return "cpu"


def _yes(*_: Any, **__: Any) -> bool:
    return True


def _module(name: str, *functions: Any, **values: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    for function in functions:
        function.__module__ = name
        setattr(module, function.__name__, function)
    for key, value in values.items():
        setattr(module, key, value)
    sys.modules[name] = module
    return module


def chunk_gated_delta_rule(
    q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False,
    use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, state_v_first=False, cu_seqlens=None,
    cu_seqlens_cpu=None, chunk_indices=None, cp_context=None, **kwargs,
):  # fmt: skip
    """q, k [batch, length, heads, size], v with its own size, g and beta [batch, length, heads]."""
    calls["chunk_gated_delta_rule"] += 1
    return _recurrence(q, k, v, g.float().exp()[..., None], beta, scale, use_qk_l2norm_in_kernel, cu_seqlens)


def fused_recurrent_gated_delta_rule(
    q, k, v, g=None, gk=None, gv=None, beta=None, scale=None, initial_state=None, output_final_state=False,
    use_qk_l2norm_in_kernel=False, cu_seqlens=None, **kwargs,
):  # fmt: skip
    """For generation; not measured."""
    raise NotImplementedError


def chunk_kda(
    q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False,
    use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, safe_gate=False,
    lower_bound=None, disable_recompute=False, return_intermediate_states=False, state_v_first=False,
    cu_seqlens=None, cu_seqlens_cpu=None, cp_context=None, use_graph=False, max_num_seqs=None, **kwargs,
):  # fmt: skip
    """As above with a decay for every key: g [batch, length, heads, size]."""
    calls["chunk_kda"] += 1
    decay = g.float().clamp(max=0).exp()
    return _recurrence(q, k, v, decay, beta.float().clamp(0, 1), scale, use_qk_l2norm_in_kernel, cu_seqlens)


def fused_recurrent_kda(q, k, v, g, beta, scale=None, initial_state=None, cu_seqlens=None, **kwargs):
    """For generation; not measured."""
    raise NotImplementedError


def _recurrence(q, k, v, decay, beta, scale, normalise, cu_seqlens):
    if normalise:
        q, k = F.normalize(q.float(), dim=-1), F.normalize(k.float(), dim=-1)
    q, k = (t.repeat_interleave(v.shape[2] // t.shape[2], dim=2).float() for t in (q, k))
    q = q * (scale or q.shape[-1] ** -0.5)
    starts = set() if cu_seqlens is None else set(cu_seqlens.tolist())
    out, state = [], q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    for i in range(q.shape[1]):
        if i in starts:
            state = torch.zeros_like(state)
        state = state * decay[:, i].unsqueeze(-1)
        wrong = v[:, i].float() - (state * k[:, i].unsqueeze(-1)).sum(-2)
        state = state + k[:, i].unsqueeze(-1) * (wrong * beta[:, i].float().unsqueeze(-1)).unsqueeze(-2)
        out.append((state * q[:, i].unsqueeze(-1)).sum(-2))
    return torch.stack(out, dim=1).to(v.dtype), None


def causal_conv1d_fn(
    x, weight, bias=None, seq_idx=None, initial_states=None, return_final_states=False, final_states_out=None,
    activation=None,
):  # fmt: skip
    """x [batch, channels, length], weight [channels, width], seq_idx int32 [batch, length]."""
    calls["causal_conv1d_fn"] += 1
    length, width = x.shape[-1], weight.shape[-1]
    out = torch.zeros_like(x) if bias is None else torch.zeros_like(x) + bias[:, None]
    for back in range(min(width, length)):
        tap = F.pad(x, (back, 0))[..., :length]
        if seq_idx is not None:
            tap = tap * (F.pad(seq_idx, (back, 0), value=-1)[..., :length] == seq_idx)[:, None]
        out = out + tap * weight[:, width - 1 - back, None]
    return F.silu(out) if activation in ("silu", "swish") else out


def causal_conv1d_update(
    x, conv_state, weight, bias=None, activation=None, cache_seqlens=None, conv_state_indices=None
):
    """For generation; not measured."""
    raise NotImplementedError


def mamba_chunk_scan_combined(
    x, dt, A, B, C, chunk_size, D=None, z=None, dt_bias=None, initial_states=None, seq_idx=None,
    cu_seqlens=None, dt_softplus=False, dt_limit=(0.0, float("inf")), return_final_states=False,
    return_varlen_states=False,
):  # fmt: skip
    """x [batch, length, heads, size], dt [batch, length, heads], B and C [batch, length, groups, state]."""
    calls["mamba_chunk_scan_combined"] += 1
    dt = dt.float() if dt_bias is None else dt.float() + dt_bias
    dt = (F.softplus(dt) if dt_softplus else dt).clamp(*dt_limit)
    B, C = (t.repeat_interleave(x.shape[2] // t.shape[2], dim=2).float() for t in (B, C))
    out, state = [], x.new_zeros(x.shape[0], x.shape[2], x.shape[3], B.shape[3])
    for i in range(x.shape[1]):
        if i and seq_idx is not None:
            state = state * (seq_idx[:, i] == seq_idx[:, i - 1])[:, None, None, None]
        new = (dt[:, i].unsqueeze(-1) * x[:, i]).unsqueeze(-1) * B[:, i].unsqueeze(-2)
        state = state * (dt[:, i] * A).exp()[..., None, None] + new
        out.append((state * C[:, i].unsqueeze(-2)).sum(-1))
    whole = torch.stack(out, dim=1)
    if D is not None:
        whole = whole + x * (D[:, None] if D.dim() == 1 else D)
    whole = (whole if z is None else whole * F.silu(z)).to(x.dtype)
    return (whole, state) if return_final_states else whole


def mamba_split_conv1d_scan_combined(
    zxbcdt, conv1d_weight, conv1d_bias, dt_bias, A, D, chunk_size, initial_states=None, seq_idx=None,
    dt_limit=(0.0, float("inf")), return_final_states=False, activation="silu", rmsnorm_weight=None,
    rmsnorm_eps=1e-6, outproj_weight=None, outproj_bias=None, headdim=None, ngroups=1, norm_before_gate=True,
):  # fmt: skip
    """zxbcdt [batch, length, gate + convolved + heads] -> [batch, length, hidden]."""
    calls["mamba_split_conv1d_scan_combined"] += 1
    heads = D.shape[0]
    inner = heads * headdim
    states = conv1d_weight.shape[0] - inner
    z, mixed, dt = zxbcdt.split([inner, inner + states, heads], dim=-1)
    mixed = causal_conv1d_fn(
        mixed.transpose(1, 2), conv1d_weight, conv1d_bias, seq_idx, activation=activation
    )
    x, B, C = mixed.transpose(1, 2).split([inner, states // 2, states // 2], dim=-1)
    parted = [t.unflatten(-1, (count, -1)) for t, count in ((x, heads), (B, ngroups), (C, ngroups))]
    scanned = mamba_chunk_scan_combined(
        parted[0], dt, A, parted[1], parted[2], chunk_size, D=D, dt_bias=dt_bias, dt_softplus=True,
        seq_idx=seq_idx, dt_limit=dt_limit,
    )  # fmt: skip
    out = scanned.flatten(-2) * F.silu(z)
    if rmsnorm_weight is not None:
        out = F.rms_norm(out, out.shape[-1:], rmsnorm_weight, rmsnorm_eps)
    return out if outproj_weight is None else F.linear(out, outproj_weight, outproj_bias)


def selective_state_update(
    state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False, state_batch_indices=None
):
    """For generation; not measured."""
    raise NotImplementedError


class FusedRMSNormGated(torch.nn.Module):
    """The norm that the Qwen families took from fla before 5.15."""

    def __init__(self, hidden_size, eps=1e-6, activation="silu", **_: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, hidden_states, gate=None):
        normed = F.rms_norm(hidden_states.float(), hidden_states.shape[-1:], self.weight.float(), self.eps)
        return (normed if gate is None else normed * F.silu(gate.float())).to(hidden_states.dtype)
