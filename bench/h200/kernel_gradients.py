"""How far the fused gated-delta-rule kernels are from a float64 recurrence, by head size.

    python bench/h200/kernel_gradients.py --kernels FOLDER    # every way below, each in a process of its own
    python bench/h200/kernel_gradients.py --only fallback --device cpu

FOLDER holds flash-linear-attention and what it needs, as `pip install --target` leaves it. Ways: `tilelang`
(the packages as they are), `triton` (flash-linear-attention with FLA_TILELANG=0), `fallback` (transformers'
PyTorch code, started without FOLDER). Compared are the output and every gradient. Inputs are bf16, two
examples packed into one row; the fallback gets them one by one: it does not know where an example ends.
"""

import argparse
import json
import os
import subprocess
import sys
import time

LENGTHS, HEADS = (200, 312), 4


def inputs(torch, head_size: int, device: str):
    """q, k, v: [1, T, H, K] bf16; g (log decay), beta: [1, T, H]; states live for tens of tokens."""
    generator = torch.Generator().manual_seed(0)
    size = (1, sum(LENGTHS), HEADS)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    q, k = (torch.nn.functional.normalize(draw(*size, head_size), dim=-1) for _ in range(2))
    v, beta = draw(*size, head_size), torch.sigmoid(draw(*size))
    g = -torch.nn.functional.softplus(draw(*size) - 2.5)
    made = [x.to(device, torch.bfloat16) for x in (q, k, v)] + [g.to(device), beta.to(device, torch.bfloat16)]
    return [x.requires_grad_() for x in made], draw(*size, head_size).to(device)


def recurrence(torch, q, k, v, g, beta):
    """The rule token by token in float64: S = S * exp(g) + k (beta (v - S^T k))^T, o = S^T q / sqrt(K)."""
    out, start = [], 0
    for length in LENGTHS:
        state = torch.zeros(HEADS, q.shape[-1], v.shape[-1], dtype=torch.float64, device=q.device)
        for t in range(start, start + length):
            state = state * g[0, t].exp()[:, None, None]
            delta = (v[0, t] - torch.einsum("hkv,hk->hv", state, k[0, t])) * beta[0, t][:, None]
            state = state + torch.einsum("hk,hv->hkv", k[0, t], delta)
            out.append(torch.einsum("hkv,hk->hv", state, q[0, t]) / q.shape[-1] ** 0.5)
        start += length
    return torch.stack(out)[None]


def fused(torch, *given):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    ends = torch.tensor([0, *(sum(LENGTHS[: i + 1]) for i in range(len(LENGTHS)))], device=given[0].device)
    return chunk_gated_delta_rule(*given, cu_seqlens=ends)[0]


def fallback(torch, *given):
    from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule as rule

    parts = zip(*(x.split(list(LENGTHS), dim=1) for x in given), strict=True)
    return torch.cat([rule(q, k, v, g=g, beta=beta)[0] for q, k, v, g, beta in parts], dim=1)


def measure(way: str, head_size: int, device: str) -> dict:
    import torch

    given, weight = inputs(torch, head_size, device)
    started = time.monotonic()
    mine = (fallback if way == "fallback" else fused)(torch, *given)
    gradients = torch.autograd.grad((mine.double() * weight).sum(), given)
    first_s = time.monotonic() - started
    exact = [x.detach().double().requires_grad_() for x in given]
    out = recurrence(torch, *exact)
    wanted = torch.autograd.grad((out * weight).sum(), exact)
    away = lambda a, b: ((a.double() - b).norm() / b.norm()).item()  # noqa: E731
    names = ("q", "k", "v", "g", "beta")
    return {
        "output": away(mine, out),
        **{f"d{name}": away(a, b) for name, a, b in zip(names, gradients, wanted, strict=True)},
        "first_call_s": round(first_s, 1),
    }


def run_alone(way: str, head_size: int, args) -> dict:
    env = dict(os.environ)
    if way == "triton":
        env["FLA_TILELANG"] = "0"
    if args.kernels and way != "fallback":
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (args.kernels, env.get("PYTHONPATH"))))
    call = [
        sys.executable,
        __file__,
        "--device",
        args.device,
        "--inside",
        way,
        "--head-sizes",
        str(head_size),
    ]
    try:
        done = subprocess.run(call, env=env, capture_output=True, text=True, timeout=args.limit_s)
    except subprocess.TimeoutExpired:
        return {"error": f"no result within {args.limit_s} s"}
    if done.returncode:
        return {
            "error": next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no message")
        }
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", metavar="FOLDER")
    parser.add_argument("--only", choices=("tilelang", "triton", "fallback"), action="append")
    parser.add_argument("--head-sizes", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit-s", type=float, default=240)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(measure(args.inside, args.head_sizes[0], args.device)))
        return
    for head_size in args.head_sizes:
        for way in args.only or ("fallback", "tilelang", "triton"):
            result = run_alone(way, head_size, args)
            print(json.dumps({"head_size": head_size, "way": way, **result}), flush=True)


if __name__ == "__main__":
    main()
