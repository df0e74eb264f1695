"""Fast paths of state-space layers (mamba-ssm), and of norms, activations and the loss (liger-kernel)."""

import torch
import torch.nn.functional as F
from judging import LENGTHS, found, judge


def state_space(path, size, device, dtype):
    """Mamba 2: x [1, T, heads, d], dt [1, T, heads], B and C [1, T, groups, state]; examples packed."""
    heads, d, groups, state = size["heads"], size["head_dim"], size["groups"], size["state"]
    torch.manual_seed(0)
    total = sum(LENGTHS)
    shapes = [(heads, d), (heads,), (groups, state), (groups, state)]
    inputs = [torch.randn(1, total, *s, device=device) for s in shapes]
    decay = -torch.rand(heads, device=device) - 0.5
    index = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS)).to(device, torch.int32)[None]

    def plain(x, dt, b, c):
        parts = zip(*(t[0].split(LENGTHS) for t in (x, dt, b, c)), strict=True)
        return torch.cat([scan_one_by_one(*part, decay) for part in parts])[None]

    def packed(function):
        def run(x, dt, b, c):
            return function(x, F.softplus(dt), decay, b, c, chunk_size=64, seq_idx=index)

        return run

    function, reason = found("mamba_ssm.ops.triton.ssd_combined", "mamba_chunk_scan_combined")
    if function is not None and device.type != "cuda":
        function, reason = None, "needs a GPU"
    roads = {"mamba-ssm": (packed(function) if function is not None else None, reason)}
    return judge(path, roads, inputs, dtype, plain, plain)


def scan_one_by_one(x, dt, b, c, decay):
    """The scan of one example: x [T, heads, d], dt [T, heads], b and c [T, groups, n] -> like x."""
    dt = F.softplus(dt.float())
    b, c = (t.repeat_interleave(x.shape[1] // t.shape[1], dim=1) for t in (b, c))
    state, out = x.new_zeros(x.shape[1], x.shape[2], b.shape[2], dtype=torch.float32), []
    for t in range(len(x)):
        state = state * (dt[t] * decay).exp()[:, None, None]
        state = state + (dt[t][:, None] * x[t])[..., None] * b[t][:, None]
        out.append((state * c[t][:, None]).sum(-1))
    return torch.stack(out).to(x.dtype)


def fused_layers(path, size, device, dtype):
    """RMSNorm, its (1 + weight) variant, and SwiGLU at the model's sizes."""
    torch.manual_seed(0)
    hidden, inner, eps = size["hidden"], size["intermediate"], size["eps"]
    x = torch.randn(sum(LENGTHS), hidden, device=device)
    answers = []
    for name, offset in (("RMSNorm", 0.0), ("RMSNorm of 1 + weight", 1.0)):
        weight = torch.rand(hidden, device=device)

        def plain(x, w, offset=offset):
            scaled = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
            return (scaled * (offset + w.float())).to(x.dtype)

        def liger(function, offset=offset):
            casting = "gemma" if offset else "llama"
            return lambda x, w: function(x, w, eps, offset, casting, False)

        roads = {"liger-kernel": on_gpu("liger_rms_norm", liger, device)}
        answers += judge(f"{path}, {name}", roads, [x, weight], dtype, plain, plain)
    gates = [torch.randn(sum(LENGTHS), inner, device=device) for _ in range(2)]
    roads = {"liger-kernel": on_gpu("liger_swiglu", lambda function: function, device)}

    def swiglu(a, b):
        return F.silu(a) * b

    return answers + judge(f"{path}, SwiGLU", roads, gates, dtype, swiglu, swiglu)


def loss_head(path, size, device, dtype):
    """hidden [T, hidden] and head [vocabulary, hidden] to the summed loss, a third without target."""
    torch.manual_seed(0)
    total = sum(LENGTHS)
    inputs = [torch.randn(total, size["hidden"], device=device)]
    roads = {"liger-kernel": on_gpu("liger_fused_linear_cross_entropy", None, device)}
    function, reason = roads["liger-kernel"]
    if function is None:  # the head of a large vocabulary is not made for nothing
        return judge(path, roads, inputs, dtype, None, None)
    inputs.append(torch.randn(size["vocabulary"], size["hidden"], device=device) * size["hidden"] ** -0.5)
    targets = torch.randint(0, size["vocabulary"], (total,), device=device)
    targets[::3] = -100

    def plain(h, w):
        return F.cross_entropy(F.linear(h, w).float(), targets, reduction="sum")

    def liger(h, w):
        out = function(h, w, targets, reduction="sum", accum_dtype=torch.float32)
        return out[0] if isinstance(out, tuple) else out

    return judge(path, {"liger-kernel": (liger, reason)}, inputs, dtype, plain, plain)


def on_gpu(name, make, device):
    """(road, reason) for one of liger-kernel's functions."""
    function, reason = found("liger_kernel.transformers.functional", name)
    if function is not None and device.type != "cuda":
        return None, "needs a GPU"
    return (make(function) if make and function is not None else function), reason
