"""Is each fast path of a model live on this machine, forward and backward, with the right numbers?

python fast_paths.py < sizes.json > answers.json

Runs in the job's own environment: torch and what is installed beside it. Each path gets random inputs of the
model's own sizes in the job's compute dtype. Its output and the gradient of every input are compared with
plain float32 arithmetic; a path may be 1.5 times as far from it as plain torch in the compute dtype is.
Examples are packed, so a path that forgets a boundary is wrong here, too.
"""

import contextlib
import inspect
import json
import os
import sys

import torch
import torch.nn.functional as F

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from judging import LENGTHS, boundaries, found, in_short, judge  # noqa: E402
from layer_paths import fused_layers, loss_head, state_space  # noqa: E402


def main():
    sizes = json.load(sys.stdin)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = getattr(torch, sizes.get("dtype", "bfloat16"))
    answers = []
    for name, check in CHECKS.items():
        if name not in sizes:
            continue
        try:
            with contextlib.redirect_stdout(sys.stderr):
                answers += check(name, sizes[name], device, dtype)
        except Exception as fault:  # one path that breaks is an answer, too
            answers.append({"path": name, "by": "plain torch", "state": "failed", "detail": in_short(fault)})
    where = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    json.dump({"device": where, "torch": torch.__version__, "paths": answers}, sys.stdout)


def attention(path, size, device, dtype):
    """query [T, heads, d], key and value [T, kv heads, d]; causal within examples."""
    heads, kv_heads, d = size["heads"], size["kv_heads"], size["head_dim"]
    total, ends = sum(LENGTHS), boundaries(device)
    torch.manual_seed(0)
    inputs = [torch.randn(total, n, d, device=device) for n in (heads, kv_heads, kv_heads)]

    def each(q, k, v, run):
        parts = zip(*(x.transpose(0, 1).split(LENGTHS, dim=1) for x in (q, k, v)), strict=True)
        return torch.cat(
            [
                run(a, b.repeat_interleave(heads // kv_heads, 0), c.repeat_interleave(heads // kv_heads, 0))
                for a, b, c in parts
            ],
            dim=1,
        ).transpose(0, 1)

    def by_hand(q, k, v):
        scores = (q @ k.transpose(1, 2)) * d**-0.5
        mask = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).tril()
        return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v

    def sdpa(q, k, v):
        return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]

    def flash(function):
        def run(q, k, v):
            options = {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "causal": True}
            options |= {"max_seqlen_q": max(LENGTHS), "max_seqlen_k": max(LENGTHS)}
            takes = inspect.signature(function).parameters  # version 4 has fewer of them
            out = function(q, k, v, **{name: x for name, x in options.items() if name in takes})
            return out[0] if isinstance(out, tuple) else out

        return run

    def varlen(function):
        def run(q, k, v):
            k, v = (x.repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
            return function(q, k, v, ends, ends, max(LENGTHS), max(LENGTHS), window_size=(-1, 0))

        return run

    roads = {"torch, one call an example": (lambda q, k, v: each(q, k, v, sdpa), "")}
    places = {
        "flash-attn 2": ("flash_attn", flash),
        "flash-attn 3": ("flash_attn_interface", flash),
        "flash-attn 4": ("flash_attn.cute", flash),
        "torch varlen_attn": ("torch.nn.attention.varlen", varlen),
    }
    for by, (place, make) in places.items():
        name = "varlen_attn" if make is varlen else "flash_attn_varlen_func"
        function, reason = found(place, name)
        if function is not None and (device.type != "cuda" or dtype == torch.float32):
            function, reason = None, "needs a GPU and a half type"
        elif function is not None and by in MADE_FOR:
            chip = torch.cuda.get_device_capability(device)[0]
            function, reason = (
                (function, "") if chip in MADE_FOR[by] else (None, f"needs another GPU than sm_{chip}0")
            )
        roads[by] = (make(function) if function is not None else None, reason)
    return judge(
        path,
        roads,
        inputs,
        dtype,
        lambda q, k, v: each(q, k, v, by_hand),
        lambda q, k, v: each(q, k, v, by_hand),
    )


def causal_conv(path, size, device, dtype):
    """x [1, channels, T], weight [channels, width]; silu; every example starts from nothing."""
    channels, width = size["channels"], size["width"]
    ends, index = boundaries(device), torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS))
    torch.manual_seed(0)
    inputs = [
        torch.randn(1, sum(LENGTHS), channels, device=device).transpose(1, 2),
        torch.randn(channels, width, device=device),
    ]

    def plain(x, w):
        parts = [
            F.conv1d(p, w[:, None], padding=width - 1, groups=channels)[..., : p.shape[2]]
            for p in x.split(LENGTHS, 2)
        ]
        return F.silu(torch.cat(parts, dim=2))

    def cuda_conv(function):
        def run(x, w):
            x = x.transpose(1, 2).contiguous().transpose(1, 2)  # channels last, which seq_idx asks for
            return function(x, w, None, activation="silu", seq_idx=index.to(device, torch.int32)[None])

        return run

    def fla_conv(function):
        def run(x, w):
            out = function(
                x.transpose(1, 2).contiguous(), w, None, activation="silu", backend="triton", cu_seqlens=ends
            )
            return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

        return run

    roads = {}
    for by, places, name, make in (
        ("causal-conv1d", ["causal_conv1d"], "causal_conv1d_fn", cuda_conv),
        (
            "flash-linear-attention",
            ["fla.modules.causal_conv1d", "fla.modules.conv.causal_conv1d", "fla.modules.convolution"],
            "causal_conv1d",
            fla_conv,
        ),
    ):
        tried = [found(place, name) for place in places]
        function, reason = next((t for t in tried if t[0] is not None), tried[0])
        if function is not None and device.type != "cuda":
            function, reason = None, "needs a GPU"
        roads[by] = (make(function) if function is not None else None, reason)
    return judge(path, roads, inputs, dtype, plain, plain)


def gated_delta_rule(path, size, device, dtype):
    """query and key [1, T, heads, dk], value [1, T, heads, dv], g and beta [1, T, heads]."""
    heads, dk, dv = size["heads"], size["key_dim"], size["value_dim"]
    ends = boundaries(device)
    torch.manual_seed(0)
    shapes = [(heads, dk), (heads, dk), (heads, dv), (heads,), (heads,)]
    inputs = [torch.randn(1, sum(LENGTHS), *s, device=device) for s in shapes]

    def gates(g, beta):
        return -F.softplus(g), beta.sigmoid()

    def plain(q, k, v, g, beta):
        g, beta = gates(g, beta)
        return torch.cat(
            [
                one_by_one(*part)
                for part in zip(*(x[0].split(LENGTHS) for x in (q, k, v, g, beta)), strict=True)
            ]
        )[None]

    def fla(function):
        def run(q, k, v, g, beta):
            g, beta = gates(g.float(), beta)
            options = {"initial_state": None, "output_final_state": False, "use_qk_l2norm_in_kernel": True}
            return function(q, k, v, g=g, beta=beta, cu_seqlens=ends, **options)[0]

        return run

    function, reason = found("fla.ops.gated_delta_rule", "chunk_gated_delta_rule")
    if function is not None and device.type != "cuda":
        function, reason = None, "needs a GPU"
    roads = {"flash-linear-attention": (fla(function) if function is not None else None, reason)}
    return judge(path, roads, inputs, dtype, plain, plain)


def one_by_one(q, k, v, g, beta):
    """The gated delta rule of an example by the token: q, k [T, heads, dk], v [T, heads, dv] -> like v."""
    q, k = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    q = q * q.shape[-1] ** -0.5
    state, out = q.new_zeros(q.shape[1], q.shape[2], v.shape[2]), []
    for t in range(len(q)):
        state = state * g[t].exp()[:, None, None]
        change = (v[t] - (state * k[t][..., None]).sum(1)) * beta[t][:, None]
        state = state + k[t][..., None] * change[:, None]
        out.append((state * q[t][..., None]).sum(1))
    return torch.stack(out)


MADE_FOR = {"flash-attn 3": (9,), "flash-attn 4": (10, 12)}  # generations of GPUs
CHECKS = {
    "attention": attention,
    "causal_conv": causal_conv,
    "gated_delta_rule": gated_delta_rule,
    "state_space": state_space,
    "fused_layers": fused_layers,
    "loss_head": loss_head,
}

if __name__ == "__main__":
    main()
