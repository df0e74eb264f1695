"""A plain loop that does to its files what long jobs do: resumes, rotates, logs, appends, saves in `finally`."""

import glob
import json
import logging
import os
import shutil
import sys

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


def number(path):
    return int(path.rsplit("-", 1)[1])


class Rows(Dataset):
    """Caches beside the data, in the worker processes."""

    def __len__(self):
        return 400

    def __getitem__(self, index):
        if get_worker_info() is not None:
            os.makedirs("data/cache", exist_ok=True)
            with open("data/cache/seen.txt", "a") as seen:
                seen.write(f"{index}\n")
        return torch.full((8,), float(index))


def main(steps, workers, context):
    logging.basicConfig(filename="train.log", level=logging.INFO)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    found = sorted(glob.glob("out/checkpoint-*"), key=number)
    first = 0
    if found:
        first = number(found[-1])
        model.load_state_dict(torch.load(f"{found[-1]}/model.pt"))
        print("resumed from", first)
    metrics = open("metrics.jsonl", "a")
    loader = DataLoader(Rows(), batch_size=4, num_workers=workers, multiprocessing_context=context)
    step = first
    try:
        for batch in loader:
            if step >= steps:
                break
            step += 1
            loss = model(batch).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            metrics.write(json.dumps({"step": step, "loss": loss.item()}) + "\n")
            metrics.flush()
            logging.info("step %d", step)
            if step % 2 == 0:
                os.makedirs("out/tmp", exist_ok=True)
                torch.save(model.state_dict(), "out/tmp/model.pt")
                os.rename("out/tmp", f"out/checkpoint-{step}")
                if os.path.lexists("out/latest"):
                    os.unlink("out/latest")
                os.symlink(f"checkpoint-{step}", "out/latest")
                for old in sorted(glob.glob("out/checkpoint-*"), key=number)[:-2]:
                    shutil.rmtree(old)
    finally:
        torch.save(model.state_dict(), "model.pt")
        assert len(glob.glob("out/checkpoint-*")) <= 2, os.listdir("out")
        print("kept", sorted(os.listdir("out")), "lines", sum(1 for _ in open("metrics.jsonl")))


if __name__ == "__main__":
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    main(int(sys.argv[1]), workers, sys.argv[3] if workers and len(sys.argv) > 3 else None)
