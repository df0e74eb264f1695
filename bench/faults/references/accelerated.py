"""Fine-tuning with accelerate and gradient accumulation, on one process or several."""

from __future__ import annotations

import argparse
import random
import time

import corpus
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, LlamaConfig


def collate(rows):
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def similar_length(rows, batch_size):
    """The rows in batches of about the same length, the batches in random order."""
    rows = sorted(rows, key=len)
    batches = [rows[n : n + batch_size] for n in range(0, len(rows) - batch_size + 1, batch_size)]
    random.Random(0).shuffle(batches)
    return [row for batch in batches for row in batch]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--width", type=int, default=256)
    args = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    accelerator = Accelerator(
        gradient_accumulation_steps=args.accumulate,
        mixed_precision="bf16" if on_gpu else "no",
    )
    torch.manual_seed(0)
    rows = similar_length(corpus.ragged_rows(1000, 256, 4096), args.batch_size * 2)
    loader = DataLoader(rows, batch_size=args.batch_size, collate_fn=collate, pin_memory=on_gpu)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=args.width,
        intermediate_size=args.width * 11 // 4,
        num_hidden_layers=4,
        num_attention_heads=args.width // 32,
        num_key_value_heads=args.width // 64,
        use_cache=False,
    )
    with accelerator.device:
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    running = torch.zeros((), device=accelerator.device)
    step = 0
    started = time.perf_counter()
    while step < args.steps:
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            running += loss.detach()
            if not accelerator.sync_gradients:
                continue
            step += 1
            if step == 3:
                started = time.perf_counter()
            if step % 20 == 0:
                accelerator.print(f"step {step} loss {running.item() / 20 / args.accumulate:.3f}")
                running.zero_()
            if step == args.steps:
                break
    if args.steps > 3:
        accelerator.print(f"{1000 * (time.perf_counter() - started) / (args.steps - 3):.1f} ms/step")
    accelerator.end_training()


if __name__ == "__main__":
    main()
