"""Thousands of tiny steps with slow faults planted: drift, a leak, saves, and a collector's pause."""

import argparse
import gc
import time

import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3000)
parser.add_argument("--fault", default="none")
args = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return args.steps

    def __getitem__(self, index):
        if args.fault == "drift":
            time.sleep(0.002 + 0.002 * index / args.steps)
        elif args.fault == "jump":
            time.sleep(0.002 if index < 0.6 * args.steps else 0.004)
        else:
            time.sleep(0.002 if args.fault != "none" else 0)
        return torch.full((8,), index % 50)


for step, batch in enumerate(DataLoader(Rows(), batch_size=1)):
    loss = torch.nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if args.fault == "leak":
        kept.append(torch.ones(16 << 10))
    if args.fault == "pauses" and step % 400 == 399:
        time.sleep(0)
        torch.save({"model": model.state_dict(), "pad": torch.zeros(4 << 20)}, "checkpoint.pt")
    if args.fault == "pauses" and step % 700 == 699:
        loop = [[] for _ in range(400_000)]
        gc.collect()
        del loop
print("end of the job")
