"""Train a tiny model on the CPU and record it with torch.profiler in several ways (run as a script)."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        q, k, v = (t.view(batch, time, 2, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(batch, time, width))


class Model(nn.Module):
    def __init__(self, recompute: bool, one_hot: bool = False) -> None:
        super().__init__()
        self.one_hot = one_hot
        self.embed, self.head = nn.Embedding(64, 32), nn.Linear(32, 64)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.recompute = recompute

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        if self.one_hot:
            x = nn.functional.one_hot(tokens, 64).float() @ self.embed.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(x)


def record(
    file: Path, *, recompute: bool = False, accumulate: int = 1, steps: int = 3, marks: bool = True,
    stacks: bool = False, fused: bool = False, optimizer: str = "AdamW", double: bool = False,
    one_hot: bool = False, smoothed: int = 0,
) -> object:  # fmt: skip
    """Write one trace; returns the profiler."""
    torch.manual_seed(0)
    model = Model(recompute, one_hot).double() if double else Model(recompute, one_hot)
    options = {"fused": True} if fused else {"foreach": False}
    update = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3, **options)
    data = torch.utils.data.DataLoader(torch.randint(0, 64, (256, 16)), batch_size=4)
    batches = iter(data)

    def step() -> None:
        for _ in range(accumulate):
            tokens = next(batches)
            logits = model(tokens).flatten(0, 1)
            if smoothed:
                tokens = tokens % smoothed
                wanted = nn.functional.one_hot(tokens.flatten(), smoothed) * 0.9 + 0.1 / smoothed
                loss = -(wanted * logits[:, :smoothed].log_softmax(-1)).sum(-1).mean()
            else:
                loss = nn.functional.cross_entropy(logits, tokens.flatten())
            (loss / accumulate).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        update.zero_grad()

    step()
    plan = schedule(wait=0, warmup=1, active=steps, repeat=1) if marks else None
    with profile(
        activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True, with_stack=stacks,
        profile_memory=stacks,
    ) as profiler:  # fmt: skip
        for _ in range(steps + (1 if marks else 0)):
            step()
            if marks:
                profiler.step()
    profiler.export_chrome_trace(str(file))
    return profiler


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    marked = record(folder / "marked.json")
    try:
        from torch.profiler._chrome_trace_export import export_chrome_trace
    except ImportError:
        pass
    else:
        export_chrome_trace(marked.profiler.kineto_results, str(folder / "second.json.gz"), {"a": "1"})  # type: ignore[attr-defined]
    record(folder / "unmarked.json", marks=False)
    record(folder / "recompute.json", marks=False, recompute=True, steps=2)
    record(folder / "accumulate.json", marks=False, accumulate=4, steps=2)
    record(folder / "stacks.json", stacks=True, steps=2)
    record(folder / "fused.json", fused=True, marks=False, steps=1)
    record(folder / "double.json", double=True, marks=False, steps=1)
    record(folder / "one_hot.json", one_hot=True, marks=False, steps=1)
    record(folder / "smoothed.json", smoothed=64, marks=False, steps=1)
    record(folder / "as_wide.json", smoothed=32, marks=False, steps=1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
