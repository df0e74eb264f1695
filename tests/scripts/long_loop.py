"""Thousands of tiny steps with slow faults planted: drift, a leak, saves, evaluations, a late rank, a pause."""

import argparse
import gc
import os
import time

import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3000)
parser.add_argument("--fault", default="none")
args = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50))
ranked = "RANK" in os.environ
if ranked:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
late = args.fault == "straggler" and os.environ.get("RANK") == "1"
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
    if late:
        time.sleep(0.006)
    loss = torch.nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if args.fault == "evaluates" and step % 400 == 399:
        model.eval()
        with torch.no_grad():
            for number, other in enumerate(DataLoader(Rows(), batch_size=1)):
                model(other)
                if number == 150:
                    break
        model.train()
    if args.fault == "leak":
        kept.append(torch.ones(16 << 10))
    if args.fault == "pauses" and step % 400 == 399:
        time.sleep(0)
        torch.save({"model": model.state_dict(), "pad": torch.zeros(4 << 20)}, "checkpoint.pt")
    if args.fault == "pauses" and step % 700 == 699:
        loop = [[] for _ in range(400_000)]
        gc.collect()
        del loop
if ranked:
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
print("end of the job")
