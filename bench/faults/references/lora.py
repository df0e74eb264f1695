"""LoRA fine-tuning with peft: the base stays frozen, in bf16 on a GPU."""

from __future__ import annotations

import argparse
import time

import corpus
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, LlamaConfig


def collate(rows):
    ids = torch.stack(rows)
    return {"input_ids": ids, "labels": ids.clone()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    loader = DataLoader(
        corpus.token_rows(480, args.length, 4096),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        pin_memory=on_gpu,
    )
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=args.width,
        intermediate_size=args.width * 11 // 4,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // 32,
        num_key_value_heads=args.width // 64,
        use_cache=False,
    )
    with torch.device(device):
        base = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    base = base.to(device, torch.bfloat16 if on_gpu else torch.float32)
    adapters = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(base, adapters)
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-4, fused=True)
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
