"""A plain loop over padded text batches; the form of the batches is an argument."""

import argparse
import os
import sys

import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--form", default="dict")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--start-method", default=None)
parser.add_argument("--ending", default="normal")
args = parser.parse_args()


class Text(torch.utils.data.Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(1)
        lengths = torch.randint(4, 24, (count,), generator=generator).tolist()
        self.rows = [torch.randint(5, 60, (n,), generator=generator) for n in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    longest = max(len(row) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, -100)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
        labels[i, 1 : len(row)] = row[1:]
    if args.form == "dict":
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}
    if args.form == "tuple":
        return ids, labels
    if args.form == "list":
        return [ids, labels]
    if args.form == "tensor":
        return ids
    from transformers import BatchEncoding

    return BatchEncoding({"input_ids": ids, "attention_mask": mask, "labels": labels})


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(64, 32)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU()) for _ in range(2)
        )
        self.head = torch.nn.Linear(32, 64)

    def forward(self, input_ids, labels=None, attention_mask=None):
        hidden = self.embedding(input_ids)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        logits = self.head(hidden)
        target = input_ids if labels is None else labels
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100)


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(
        Text(48),
        batch_size=args.batch_size,
        collate_fn=collate,
        num_workers=args.workers,
        multiprocessing_context=args.start_method,
    )
    if args.ending == "never-trains":
        print("nothing to train", sum(1 for _ in loader))
        return
    step = 0
    for _ in range(args.epochs):
        for batch in loader:
            if args.form in ("dict", "encoding"):
                loss = model(**batch)
            elif args.form == "tensor":
                loss = model(batch)
            else:
                loss = model(*batch)
            try:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                step += 1
                print("loss", loss.item().hex())
            except:  # noqa: E722
                if args.ending != "bare-except":
                    raise
                print("swallowed")
            if step == 2 and args.ending == "crash":
                raise ValueError("the data is bad, token=hf_abcdefghijklmnop")
            if step == 2 and args.ending == "out-of-memory":
                torch.empty(1 << 50)
            if step == 4 and args.ending == "os-exit":
                sys.stdout.flush()
                os._exit(0)
            if step == 4 and args.ending == "kill":
                print("waiting", flush=True)
                os.kill(os.getpid(), 9)
    print("end of the job")


if __name__ == "__main__":
    try:
        main()
    finally:
        print("clean-up")
