"""Training of a hybrid model: gated delta rule in three layers of four, attention in the fourth."""

from __future__ import annotations

import argparse
import time

import corpus
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, Qwen3NextConfig

VOCABULARY = 4096


def collate(rows):
    ids = torch.stack(rows)
    return {"input_ids": ids, "labels": ids.clone()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=32, help="of the delta rule")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    loader = DataLoader(
        corpus.token_rows(480, args.length, VOCABULARY),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        pin_memory=on_gpu,
    )
    config = Qwen3NextConfig(
        vocab_size=VOCABULARY,
        hidden_size=args.width,
        intermediate_size=args.width * 2,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // 32,
        num_key_value_heads=args.width // 64,
        head_dim=32,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=args.head_dim,
        linear_value_head_dim=args.head_dim,
        mlp_only_layers=list(range(args.layers)),
        num_experts=0,
        use_cache=False,
    )
    with torch.device(device):
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
