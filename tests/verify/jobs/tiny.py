"""A language model of a few thousand weights trained on made-up text; planted differences by flag."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

flags = argparse.ArgumentParser()
flags.add_argument("--sleep-ms", type=float, default=0.0, help="work that is not needed, every step")
flags.add_argument("--seed", type=int, default=0)
flags.add_argument("--lr", type=float, default=1e-3)
flags.add_argument("--loss-scale", type=float, default=1.0)
flags.add_argument("--crash-at", type=int, default=-1)
flags.add_argument("--dropout", type=float, default=0.0)
flags.add_argument("--slower-each-step-ms", type=float, default=0.0)
flags.add_argument("--clock-seed", action="store_true", help="random numbers differ at every start")
flags.add_argument("--nan", action="store_true")
flags.add_argument("--loud", action="store_true", help="a megabyte without a line's end, every step")
flags.add_argument("--flaky", type=Path, help="a file that counts starts: every third one fails")
flags.add_argument("--saves-to", type=Path, help="saved every step")
args = flags.parse_args()
if args.flaky:
    with open(args.flaky, "a") as starts:
        starts.write("x")
    if args.flaky.stat().st_size % 3 == 0:
        raise OSError("the file server did not answer")

torch.set_num_threads(1)
torch.manual_seed(time.time_ns() % 2**31 if args.clock_seed else args.seed)
VOCABULARY, LENGTH = 64, 32


class TinyModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.mix = nn.GRU(32, 32, batch_first=True)
        self.drop = nn.Dropout(args.dropout)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, input_ids, labels=None):
        hidden, _ = self.mix(self.embed(input_ids))
        logits = self.head(self.drop(hidden))
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        loss = loss * float("nan") if args.nan else loss
        return {"loss": args.loss_scale * loss, "logits": logits}


def examples():
    generator = torch.Generator().manual_seed(1)
    steps = torch.randint(1, 4, (600, LENGTH), generator=generator)
    return [{"input_ids": row, "labels": row} for row in steps.cumsum(1) % VOCABULARY]


loader = DataLoader(examples(), batch_size=4, shuffle=True)
model = TinyModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
for step, batch in enumerate(loader):
    if step == args.crash_at:
        raise RuntimeError("planted crash")
    time.sleep((10 + args.sleep_ms + step * args.slower_each_step_ms) / 1000)
    loss = model(**batch)["loss"]
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if args.saves_to:
        torch.save(model.state_dict(), args.saves_to)
    if args.loud:
        print("." * 1_000_000, end="", flush=True)
    if step % 5 == 0:
        print(f"step {step} loss {loss.item():.5f}", flush=True)
