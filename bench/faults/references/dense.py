"""Continued pretraining of a dense causal model on documents that all fill the context."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import corpus
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, LlamaConfig


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--eval-every", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--compile", action="store_true", help="compile the decoder layers")
    parser.add_argument("--low-memory", action="store_true", help="recompute activations; for small GPUs")
    return parser.parse_args()


def collate(rows):
    ids = torch.stack(rows)
    return {"input_ids": ids, "labels": ids.clone()}


def build(args):
    config = LlamaConfig(
        vocab_size=args.vocabulary,
        hidden_size=args.width,
        intermediate_size=args.width * 11 // 4,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // 32,
        num_key_value_heads=args.width // 64,
        use_cache=False,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return model


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    losses = [model(**{k: v.to(device) for k, v in batch.items()}).loss for batch in loader]
    model.train()
    return torch.stack(losses).mean().item()


def main() -> None:
    args = arguments()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    rows = corpus.token_rows(512, args.length, args.vocabulary)
    loader = DataLoader(
        rows[:480],
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        num_workers=2 if on_gpu else 0,
        pin_memory=on_gpu,
        persistent_workers=on_gpu,
    )
    held_out = DataLoader(rows[480:], batch_size=args.batch_size, collate_fn=collate)
    with torch.device(device):
        model = build(args).to(device)
    model.train()
    if args.low_memory:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if args.compile:
        for layer in model.model.layers:
            layer.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    folder = Path("checkpoints")
    folder.mkdir(exist_ok=True)
    running = torch.zeros((), device=device)
    step = micro = 0
    started = time.perf_counter()
    while step < args.steps:
        for batch in loader:
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with torch.autocast(device, dtype=torch.bfloat16, enabled=on_gpu):
                loss = model(**batch).loss / args.accumulate
            loss.backward()
            running += loss.detach()
            micro += 1
            if micro % args.accumulate:
                continue
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step == 3:
                started = time.perf_counter()
            if step % 20 == 0:
                print(f"step {step} loss {running.item() / 20:.3f} norm {norm.item():.3f}", flush=True)
                running.zero_()
            if step % args.eval_every == 0:
                print(f"held out {evaluate(model, held_out, device):.3f}", flush=True)
            if step % args.save_every == 0:
                torch.save({"model": model.state_dict(), "step": step}, folder / "last.pt")
            if step == args.steps:
                break
    if args.steps > 3:
        print(f"{1000 * (time.perf_counter() - started) / (args.steps - 3):.1f} ms/step")


if __name__ == "__main__":
    main()
