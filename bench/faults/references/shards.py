"""Training on examples that lie in remote files, one each; workers fetch them ahead."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import corpus
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, LlamaConfig

LATENCY_S = 0.03  # one request to the object store


class Remote(torch.utils.data.Dataset):
    """Token rows read from one file each."""

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        time.sleep(LATENCY_S)
        row = [int(token) for token in self.paths[index].read_text().split()]
        return {"input_ids": row, "labels": row}


def collate(rows):
    return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    loader = DataLoader(
        Remote(corpus.write_shards(Path("shards"), 240, 256, 4096)),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        num_workers=2,
        prefetch_factor=4,
        persistent_workers=True,
        pin_memory=on_gpu,
    )
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        use_cache=False,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    running = torch.zeros((), device=device)
    step = 0
    started = time.perf_counter()
    while step < args.steps:
        for batch in loader:
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with torch.autocast(device, dtype=torch.bfloat16, enabled=on_gpu):
                loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            running += loss.detach()
            step += 1
            if step == 3:
                started = time.perf_counter()
            if step % 20 == 0:
                print(f"step {step} loss {running.item() / 20:.3f}", flush=True)
                running.zero_()
            if step == args.steps:
                break
    if args.steps > 3:
        print(f"{1000 * (time.perf_counter() - started) / (args.steps - 3):.1f} ms/step")


if __name__ == "__main__":
    main()
