"""Padded training loops in several hands; each prints the loss of every step."""
from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

import common

NOTE = (Path(__file__).parent / "note.txt").read_text().strip()


def star(steps):
    """model(**batch), an attribute as the model's name, accumulation over two batches."""
    class Job:
        pass

    job = Job()
    job.model = AutoModelForCausalLM.from_config(common.llama(), attn_implementation="eager")
    loader = DataLoader(common.make_examples(), batch_size=4, shuffle=False, collate_fn=common.pad)
    optimizer = torch.optim.AdamW(job.model.parameters(), lr=1e-3)
    for i, batch in enumerate(loader):
        batch = {k: v.to("cpu", non_blocking=True) for k, v in batch.items()}
        loss = job.model(**batch).loss
        (loss / 2).backward()
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
        print("star", f"{loss.item():.9f}", len(batch["input_ids"]))


def named(steps):
    """Arguments named at the call; the batch came through a dict comprehension; workers."""
    model = AutoModelForCausalLM.from_config(
        common.qwen3(),
        attn_implementation="eager",  # as it was
    ).train()
    loader = DataLoader(
        common.make_examples(),
        batch_size=4,
        collate_fn=lambda rows: common.pad(rows),
        num_workers=1,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    for batch in loader:
        batch = {k: v.to("cpu") for k, v in batch.items()}
        outputs = model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            labels=batch["labels"],
        )
        outputs.loss.backward()
        optimizer.step(); optimizer.zero_grad()
        print("named", f"{outputs.loss.item():.9f}", len(batch["input_ids"]))


def own_loss(steps):
    """Tuples, logits and a loss of the script's own; options in a dictionary."""
    def collate(rows):
        batch = common.pad(rows)
        return batch["input_ids"], batch["attention_mask"].bool(), batch["labels"]

    options = dict(batch_size=4, collate_fn=collate)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for ids, mask, labels in DataLoader(common.make_examples(), **options):
        logits = model(ids, attention_mask=mask).logits
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        print("own_loss", f"{loss.item():.9f}", len(ids))


def build():
    return AutoModelForCausalLM.from_config(common.llama(), attn_implementation="eager")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    for loop in (star, named, own_loss):
        torch.manual_seed(0)
        loop(args.steps)
    print("note", NOTE, Path(__file__).name)
