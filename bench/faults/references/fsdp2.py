"""Sharded training with FSDP2: one unit for each decoder layer, the rest in the root."""

from __future__ import annotations

import argparse
import os
import time

import corpus
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, LlamaConfig


def collate(rows):
    ids = torch.stack(rows)
    return {"input_ids": ids, "labels": ids.clone()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    args = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    torch.manual_seed(0)
    rows = corpus.token_rows(960, args.length, 4096)
    sampler = DistributedSampler(rows, shuffle=True, drop_last=True)
    loader = DataLoader(
        rows, batch_size=args.batch_size, sampler=sampler, collate_fn=collate, pin_memory=on_gpu
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
    with device:
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(device)
    model.train()
    policy = MixedPrecisionPolicy()
    if on_gpu:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    running = torch.zeros((), device=device)
    step = micro = epoch = 0
    started = time.perf_counter()
    while step < args.steps:
        sampler.set_epoch(epoch)
        epoch += 1
        for batch in loader:
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            micro += 1
            last = micro % args.accumulate == 0
            model.set_requires_gradient_sync(last)
            loss = model(**batch).loss / args.accumulate
            loss.backward()
            running += loss.detach()
            if not last:
                continue
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step == 3:
                started = time.perf_counter()
            if step % 20 == 0:
                if dist.get_rank() == 0:
                    print(f"step {step} loss {running.item() / 20:.3f}", flush=True)
                running.zero_()
            if step == args.steps:
                break
    if dist.get_rank() == 0 and args.steps > 3:
        print(f"{1000 * (time.perf_counter() - started) / (args.steps - 3):.1f} ms/step")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
